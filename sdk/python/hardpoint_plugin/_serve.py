"""The process of a plugin: the handshake of HashiCorp's go-plugin, and its end."""

import os
import signal
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from hardpoint.plugin.v1 import plugin_pb2

from . import _certificate, _log, _meter
from ._plugin import failure, schema

CORE_PROTOCOL = 1  # go-plugin's own
VERSION = 1  # of what host and plugins say
COOKIE = "HARDPOINT_PLUGIN"
COOKIE_VALUE = "3f1b7c52-hardpoint"
CONTROL = "HARDPOINT_PLUGIN_CONTROL"

# Started when they are needed. The stream of a store holds one as long as it lives.
_THREADS = 256
_GRACE = 1.0  # seconds that calls under way get at the end

_BY_HAND = (
    "this is a Hardpoint plugin, and no broker started it: run by hand it does nothing. "
    "Name it in a broker's configuration (plugins.KIND.NAME.path), or try it with `hardpoint plugin check`"
)


def serve(*plugins):
    """Serves plugin classes until the host ends the process; it does not return.

    Standard output belongs to the handshake until the host has read it; what is
    printed later goes to the host's log.
    """
    if os.environ.get(COOKIE) != COOKIE_VALUE:
        sys.exit(_BY_HAND)
    _log.start()
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(s, signal.SIG_IGN)  # the host decides
    if os.environ.get(CONTROL):
        threading.Thread(target=_end_with_host, daemon=True).start()
    versions = os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "").split(",")
    if str(VERSION) not in versions:
        sys.exit(f"the host speaks the plugin protocol {' or '.join(versions)}, this plugin {VERSION}: take one built for it")

    kinds = _kinds(plugins)
    over = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=_THREADS),
        # Records are as large as the broker's message limit says.
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    for kind in kinds.values():
        _add(server, kind.name, kind.methods())
    _add(server, "hardpoint.plugin.v1.Plugin", _about(kinds))
    _add(server, "grpc.health.v1.Health", {"Check": (lambda _, __: b"\x08\x01", None)})  # SERVING
    _add(server, "plugin.GRPCController", {"Shutdown": (lambda _, __: over.set() or b"", None)})

    directory = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp(prefix="hardpoint-")
    path = os.path.join(directory, f"plugin-{os.getpid()}")
    certificate = _listen(server, path)
    server.start()
    sys.stdout.write(f"{CORE_PROTOCOL}|{VERSION}|unix|{path}|grpc|{certificate}\n")
    sys.stdout.flush()
    sys.stdout.reconfigure(line_buffering=True)

    over.wait()
    for kind in kinds.values():
        kind.close()
    server.stop(_GRACE).wait(2 * _GRACE)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of calls that never end would hold it up


def _end_with_host():
    while os.read(0, 4096):
        pass
    os._exit(1)


def _listen(server, path):
    host = os.environ.get("PLUGIN_CLIENT_CERT")
    if not host:
        server.add_insecure_port("unix:" + path)
        return ""
    key, certificate, line = _certificate.make()
    credentials = grpc.ssl_server_credentials([(key, certificate)], root_certificates=host.encode(), require_client_auth=True)
    server.add_secure_port("unix:" + path, credentials)
    return line


def _kinds(plugins):
    from . import allocate, storage

    services = {"allocate": allocate.Service, "storage": storage.Service}
    by_kind = {}
    for p in plugins:
        if not isinstance(p, type):
            sys.exit(f"{p!r} cannot be served: serve takes classes, such as serve(Dealt)")
        if not p.name or p.kind not in services:
            sys.exit(f"{p.__name__} cannot be served: it needs a name, and to be an Allocator or a Store")
        missing = p._missing()
        if missing:
            sys.exit(f'{p.__name__} cannot be served: the {p.kind} plugin "{p.name}" lacks {", ".join(m + "()" for m in missing)}')
        by_kind.setdefault(p.kind, []).append(p)
    return {kind: services[kind](classes) for kind, classes in by_kind.items()}


def _add(server, service, methods):
    """Adds methods {name: (function, type of its request)}; a type None leaves bytes
    as they are, and a function marked as a stream is one in both directions."""
    handlers = {}
    for name, (call, request) in methods.items():
        make = grpc.stream_stream_rpc_method_handler if getattr(call, "stream", False) else grpc.unary_unary_rpc_method_handler
        handlers[name] = make(
            call,
            request_deserializer=request.FromString if request else None,
            response_serializer=(lambda m: m.SerializeToString()) if request else None,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


def _about(kinds):
    """hardpoint.plugin.v1.Plugin."""

    def list_(_, __):
        out = plugin_pb2.ListResponse()
        for kind in sorted(kinds):
            for name in sorted(kinds[kind].classes):
                out.plugins.add(kind=kind, name=name)
        return out

    def describe(r, _):
        try:
            if r.kind not in kinds:
                from .errors import ConfigError

                raise ConfigError(f"the plugin process serves no {r.kind} plugins, but {', '.join(sorted(kinds))}")
            cls = kinds[r.kind].lookup(r.name)
            cls._configure(r.config)
            return plugin_pb2.DescribeResponse(
                description=plugin_pb2.Description(
                    name=cls.name, version=cls.version, contract=cls.contract, facets=sorted(cls.facets()), schema=schema(cls)
                )
            )
        except Exception as e:
            return plugin_pb2.DescribeResponse(failure=failure(e))

    return {
        "List": (list_, plugin_pb2.ListRequest),
        "Describe": (describe, plugin_pb2.DescribeRequest),
        "Metrics": (lambda r, _: _meter.METER.collect(r.most), plugin_pb2.MetricsRequest),
    }
