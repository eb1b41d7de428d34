import unittest

import policy
import policy_pb2 as pb

MAP = r"User:CN=(.*),OU=apps,.* -> User:\1@apps; User:legacy-.* -> ; User:alice -> User:a.smith"


def ask(principal, **config):
    facts = pb.AclFacts(acl=pb.AclBinding(
        resource_type="TOPIC", resource_name="orders", pattern_type="LITERAL", principal=principal, host="*",
        operation="READ", permission_type="ALLOW"))
    answer = policy.acl(pb.Round(mirror="east", plugin_config=config), facts)
    decision, instead = answer if isinstance(answer, tuple) else (answer, None)
    if instead is not None:
        # All else stays as it is.
        rest = pb.AclBinding()
        rest.CopyFrom(instead)
        rest.principal = principal
        assert rest == facts.acl, rest
    return decision.verdict == pb.Decision.ACCEPT, instead.principal if instead else None, decision.reason


class Principals(unittest.TestCase):
    def test_mapped(self):
        self.assertEqual(ask("User:CN=billing,OU=apps,O=acme", map=MAP)[:2], (True, "User:billing@apps"))
        self.assertEqual(ask("User:alice", map=MAP)[:2], (True, "User:a.smith"))

    def test_left_out(self):
        accepted, _, reason = ask("User:legacy-etl", map=MAP)
        self.assertFalse(accepted)
        self.assertIn("User:legacy-etl", reason)

    def test_others(self):
        self.assertEqual(ask("User:alice.b", map=MAP)[:2], (True, None))
        self.assertEqual(ask("User:bob")[:2], (True, None))
        self.assertFalse(ask("User:bob", map=MAP, others="refuse")[0])

    def test_config(self):
        self.assertIsNone(policy.check_config({}))
        self.assertIsNone(policy.check_config({"map": MAP, "others": "refuse"}))
        for config, word in [({"map": "User:a"}, "form"), ({"map": "User:( -> x"}, "regular expression"),
                             ({"map": r"User:a -> \1"}, "parentheses"), ({"others": "maybe"}, "neither"), ({"mpa": ""}, "mpa")]:
            self.assertIn(word, policy.check_config(config))


if __name__ == "__main__":
    unittest.main()
