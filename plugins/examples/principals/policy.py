"""principals: an ACL policy that maps principals.

The same people have other names in the destination: certificates of another authority, users of
another directory. plugin.<name>.config.map has the rules, asked in order, the first that matches wins:

    User:CN=(.*),OU=apps,.* -> User:\\1@apps; User:legacy-.* -> ; User:alice -> User:a.smith

A rule matches whole principals. \\1 stands for what the first pair of parentheses matched; with nothing
behind the arrow the ACL is left out. plugin.<name>.config.others says what becomes of principals that
no rule matches: keep (the default) or refuse.
"""

import functools
import re

import mirror_policy


@functools.lru_cache(maxsize=16)
def parse(text):
    """Returns the rules of config.map; raises ValueError with a sentence for whoever wrote it."""
    rules = []
    for part in filter(None, (p.strip() for p in text.split(";"))):
        pattern, arrow, to = (p.strip() for p in part.partition("->"))
        if not arrow or not pattern:
            raise ValueError("map: %r is not of the form PRINCIPAL -> PRINCIPAL" % part)
        try:
            compiled = re.compile(pattern)
            if to:
                # That a group is named which there is not shows only when it is used.
                for group in re.findall(r"\\(\d+)", to):
                    if int(group) > compiled.groups:
                        raise ValueError("map: %r: there is no pair of parentheses %s" % (part, group))
        except re.error as e:
            raise ValueError("map: %r is no regular expression: %s" % (pattern, e)) from e
        rules.append((part, compiled, to))
    return rules


def check_config(config):
    try:
        parse(config.get("map", ""))
    except ValueError as e:
        return str(e)
    if config.get("others", "keep") not in ("keep", "refuse"):
        return "others: %r is neither keep nor refuse" % config["others"]
    unknown = sorted(set(config) - {"map", "others"})
    return "there is no key %s; map and others are" % unknown[0] if unknown else None


def acl(round, facts):
    principal = facts.acl.principal
    for rule, pattern, to in parse(round.plugin_config.get("map", "")):
        match = pattern.fullmatch(principal)
        if not match:
            continue
        if not to:
            return mirror_policy.refuse(rule, "%s is left out by the map of principals" % principal)
        mapped = type(facts.acl)()
        mapped.CopyFrom(facts.acl)
        mapped.principal = match.expand(to)
        return mirror_policy.accept(rule, "%s is %s here" % (principal, mapped.principal)), mapped
    if round.plugin_config.get("others", "keep") == "refuse":
        return mirror_policy.refuse("others=refuse", "the map of principals does not name %s" % principal)
    return mirror_policy.accept("others=keep", "%s has the same name here" % principal)


def main():
    mirror_policy.serve("principals", "1.0", acls=acl, check_config=check_config)


if __name__ == "__main__":
    main()
