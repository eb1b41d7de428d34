"""Makes a plugin of mirror-sidecar of functions that decide.

A policy is one function for each kind of thing that it decides on. It is called with the round (which
mirror, its configuration, why it is asked) and the facts of one item, both messages of policy.proto,
and returns accept(rule, reason) or refuse(rule, reason):

    import mirror_policy

    def topic(round, facts):
        if facts.name.startswith("tmp."):
            return mirror_policy.refuse("tmp", "topics of which the name begins with tmp. are not kept")
        return mirror_policy.accept("rest", "nothing speaks against it")

    mirror_policy.serve("no-tmp", "1.0", topics=topic)

Functions for configs, ACLs and quotas may return a pair: the decision, and what is to be set here
instead of what the source has. An events function returns nothing. What raises is an error that the
sidecar shows; the policy's last good decisions stand meanwhile.

What is needed beside the standard library: grpcio, cryptography, and policy_pb2.py and
policy_pb2_grpc.py, which grpcio-tools make of policy.proto.
"""

import base64
import datetime
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import policy_pb2 as pb
import policy_pb2_grpc as pb_grpc

# What host and plugin agree on before they talk; docs/plugins.md, "Other languages".
COOKIE_KEY, COOKIE_VALUE = "MIRROR_SIDECAR_PLUGIN", "policy"
CORE_PROTOCOL, POLICY_PROTOCOL = 1, 1
MAX_MESSAGE_BYTES = 64 << 20


MAX_RULE_BYTES, MAX_REASON_BYTES = 256, 1024


def accept(rule, reason):
    """The decision to mirror. The reason is a sentence for whoever asks why; what is too long is cut."""
    return _decision(pb.Decision.ACCEPT, rule, reason)


def refuse(rule, reason):
    """The decision to leave out."""
    return _decision(pb.Decision.REFUSE, rule, reason)


def _decision(verdict, rule, reason):
    return pb.Decision(verdict=verdict, rule=_cut(rule, MAX_RULE_BYTES), reason=_cut(reason, MAX_REASON_BYTES))


def _cut(text, limit):
    """Names of groups and principals have no bound that a reason could rely on."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    dots = "…"
    return raw[:limit - len(dots.encode())].decode(errors="ignore") + dots


_page = threading.local()


def warn(subject, text):
    """Something that whoever looks after the mirror should know of; called while deciding."""
    _page.warnings.append(pb.Warning(subject=subject, text=text))


def serve(name, version, *, check_config=None, topics=None, configs=None, acls=None, groups=None, quotas=None, events=None):
    """Makes this process the plugin; returns when the sidecar no longer needs it.

    check_config gets plugin.<name>.config.<key> of the sidecar as a dict, and returns what is wrong
    with it, or None.
    """
    if os.environ.get(COOKIE_KEY) != COOKIE_VALUE:
        sys.exit("%s is a plugin of mirror-sidecar, which starts it; to try it: mirror-sidecar plugin check -- COMMAND" % name)
    client_cert = os.environ.get("PLUGIN_CLIENT_CERT")
    if not client_cert:
        sys.exit("%s: the host names no certificate of its own (PLUGIN_CLIENT_CERT)" % name)

    # The host ends its plugins itself; a Ctrl-C at its terminal is not meant for them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()

    kinds = dict(topics=topics, configs=configs, acls=acls, groups=groups, quotas=quotas, events=events)
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=4),
        options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)],
    )
    pb_grpc.add_PluginInfoServicer_to_server(_Info(name, version, [k for k, f in kinds.items() if f], check_config), server)
    # A kind that is not decided on is a service that is not there.
    for kind, (add, servicer) in _SERVICES.items():
        if kinds[kind]:
            add(servicer(kinds[kind]), server)
    _add_go_plugin(server)

    key, cert = _identity()
    credentials = grpc.ssl_server_credentials([(key, cert.public_bytes(serialization.Encoding.PEM))],
                                              root_certificates=client_cert.encode(), require_client_auth=True)
    directory = _socket_directory()
    try:
        path = os.path.join(directory, "policy.sock")
        if server.add_secure_port("unix:" + path, credentials) == 0:
            sys.exit("%s: cannot listen at %s" % (name, path))
        server.start()
        der = base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode().rstrip("=")
        print("%d|%d|unix|%s|grpc|%s" % (CORE_PROTOCOL, POLICY_PROTOCOL, path, der), flush=True)
        # The host reads nothing else there; what a policy prints shall not be lost.
        sys.stdout = sys.stderr
        server.wait_for_termination()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _identity():
    """A key and a certificate for this process alone. gRPC's TLS takes P-256 and P-384, not P-521."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=30 * 365))
        # The host asks for this name, and takes the certificate as its own root.
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, cert


def _socket_directory():
    """A folder that only this user can enter, with a name short enough for a socket's address."""
    wanted = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="policy", dir=wanted if len(wanted) < 70 else "/tmp")


def _end_with_parent():
    """A sidecar that was killed ends nobody; its plugins must not stay behind."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _add_go_plugin(server):
    """What go-plugin asks of a plugin: that it is well, and that it ends."""

    def shutdown(_request, _context):
        threading.Thread(target=server.stop, args=(1,), daemon=True).start()
        return b""

    def method(function):  # in and out are messages without fields that matter: bytes do
        return grpc.unary_unary_rpc_method_handler(function)

    serving = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
    server.add_generic_rpc_handlers((
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method(lambda _request, _context: serving)}),
        grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": method(shutdown)}),
    ))


class _Info(pb_grpc.PluginInfoServicer):
    def __init__(self, name, version, kinds, check_config):
        self.name, self.version, self.kinds, self.check_config = name, version, kinds, check_config

    def Describe(self, request, context):
        error = self.check_config(dict(request.config)) if self.check_config else None
        return pb.DescribeResponse(name=self.name, version=self.version, kinds=self.kinds, config_error=error or "")


def _decide(context, function, *facts):
    """Calls a policy's function; nobody waits for the rest of a page whose time is up."""
    if not context.is_active():
        context.abort(grpc.StatusCode.CANCELLED, "the answer is no longer waited for")
    answer = function(*facts)
    decision, value = answer if isinstance(answer, tuple) else (answer, None)
    if not isinstance(decision, pb.Decision):
        raise TypeError("the policy returned %r where a decision was expected" % (decision,))
    return decision, value


def _optional(**fields):
    return {k: v for k, v in fields.items() if v is not None}


class _Topics(pb_grpc.TopicPolicyServicer):
    def __init__(self, function):
        self.function = function

    def SelectTopics(self, request, context):
        _page.warnings = []
        out = [
            pb.TopicDecision(name=t.name, decision=_decide(context, self.function, request.round, t)[0])
            for t in request.topics
        ]
        return pb.SelectTopicsResponse(decisions=out, warnings=_page.warnings)


class _Configs(pb_grpc.ConfigPolicyServicer):
    def __init__(self, function):
        self.function = function

    def SelectConfigs(self, request, context):
        _page.warnings, out = [], []
        for t in request.topics:
            of = pb.TopicConfigDecisions(topic=t.topic)
            for c in t.configs:
                decision, value = _decide(context, self.function, request.round, t.topic, c)
                of.decisions.append(pb.ConfigDecision(name=c.name, decision=decision, **_optional(value=value)))
            out.append(of)
        return pb.SelectConfigsResponse(topics=out, warnings=_page.warnings)


class _Acls(pb_grpc.AclPolicyServicer):
    def __init__(self, function):
        self.function = function

    def SelectAcls(self, request, context):
        _page.warnings, out = [], []
        for a in request.acls:
            decision, instead = _decide(context, self.function, request.round, a)
            answer = pb.AclDecision(decision=decision)
            if instead is not None:
                getattr(answer, "as").CopyFrom(instead)  # "as" is a word of Python's
            out.append(answer)
        return pb.SelectAclsResponse(decisions=out, warnings=_page.warnings)


class _Groups(pb_grpc.GroupPolicyServicer):
    def __init__(self, function):
        self.function = function

    def SelectGroups(self, request, context):
        _page.warnings = []
        out = [
            pb.GroupDecision(group=g.group, decision=_decide(context, self.function, request.round, g)[0])
            for g in request.groups
        ]
        return pb.SelectGroupsResponse(decisions=out, warnings=_page.warnings)


class _Quotas(pb_grpc.QuotaPolicyServicer):
    def __init__(self, function):
        self.function = function

    def SelectQuotas(self, request, context):
        _page.warnings, out = [], []
        for q in request.quotas:
            decision, value = _decide(context, self.function, request.round, q)
            out.append(pb.QuotaDecision(decision=decision, **_optional(value=value)))
        return pb.SelectQuotasResponse(decisions=out, warnings=_page.warnings)


class _Events(pb_grpc.EventSinkServicer):
    def __init__(self, function):
        self.function = function

    def Notify(self, request, context):
        for e in request.events:
            if not context.is_active():
                context.abort(grpc.StatusCode.CANCELLED, "the answer is no longer waited for")
            self.function(request.round, e)
        return pb.NotifyResponse()


_SERVICES = {
    "topics": (pb_grpc.add_TopicPolicyServicer_to_server, _Topics),
    "configs": (pb_grpc.add_ConfigPolicyServicer_to_server, _Configs),
    "acls": (pb_grpc.add_AclPolicyServicer_to_server, _Acls),
    "groups": (pb_grpc.add_GroupPolicyServicer_to_server, _Groups),
    "quotas": (pb_grpc.add_QuotaPolicyServicer_to_server, _Quotas),
    "events": (pb_grpc.add_EventSinkServicer_to_server, _Events),
}
