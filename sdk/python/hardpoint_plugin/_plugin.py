"""What plugins of all kinds have in common."""

import json
import logging
import os
import traceback

from hardpoint.plugin.v1 import plugin_pb2

from . import _log, _meter, errors


class Plugin:
    """Base of the kinds. A plugin is a class; each instance that the host opens is
    an object of it, with

    config   what the host's configuration says, on top of defaults
    logger   whose lines go to the host's log
    meter    whose counters, gauges and histograms are among the host's metrics
    dir      the directory that belongs to the instance alone, "" if it has none
    """

    kind = contract = ""
    _methods = ()  # that a subclass has to have

    #: What the plugin is called in the host's configuration.
    name = ""
    #: Its version, for people.
    version = ""
    #: The fields of its configuration with their defaults. Others are refused, and
    #: so are values of another type than the default's.
    defaults = {}

    @classmethod
    def validate(cls, config):
        """Raises ValueError when the configuration, which is complete, makes no
        sense."""

    @classmethod
    def facets(cls):
        """Names the optional abilities."""
        return []

    @classmethod
    def _missing(cls):
        base = next(c for c in cls.__mro__ if "_methods" in vars(c))
        return [m for m in cls._methods if getattr(cls, m) is getattr(base, m)]

    @classmethod
    def _configure(cls, raw):
        """Makes the configuration from the host's JSON."""
        try:
            given = json.loads(raw) if raw.strip() else {}
        except ValueError as e:
            raise errors.ConfigError(f'invalid plugin configuration of "{cls.name}": it is no JSON: {e}') from None
        try:
            config = _fill(given, cls.defaults)
            cls.validate(config)
        except ValueError as e:
            raise errors.ConfigError(f'invalid plugin configuration of "{cls.name}": {e}') from None
        return config

    def __init__(self, config, settings):
        self.config = config
        self.dir = settings.dir
        self.logger = logging.getLogger(settings.name or self.name)
        self.logger.setLevel(_log.level_of(settings.log_level))
        self.meter = _meter.METER


def _fill(given, defaults):
    if not isinstance(given, dict):
        raise ValueError("it must be one JSON object")
    config = dict(defaults)
    for key, value in given.items():
        if key not in defaults:
            known = "known fields are " + ", ".join(defaults) if defaults else "this plugin has none"
            raise ValueError(f'unknown field "{key}"; {known}')
        want = type(defaults[key])
        if want is float and type(value) is int:
            value = float(value)
        if type(value) is not want:
            raise ValueError(f"{key} is {json.dumps(value)}, it must be of the type {_schema_type(defaults[key])}")
        config[key] = value
    return config


def _schema_type(value):
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    raise TypeError(f"a default of the type {type(value).__name__} has no place in JSON")


def schema(cls):
    """The JSON Schema of a plugin's configuration."""
    fields = {key: {"type": _schema_type(value), "default": value} for key, value in cls.defaults.items()}
    return json.dumps({"type": "object", "additionalProperties": False, "properties": fields}).encode()


def failure(error):
    """The Failure that carries an exception to the host."""
    out = plugin_pb2.Failure(text=_text(error))
    if isinstance(error, errors.Corrupt):
        out.corrupt.file, out.corrupt.offset, out.corrupt.reason = error.file, error.offset, error.reason
    elif isinstance(error, errors.PluginError):
        out.codes.append(error.code)
        if isinstance(error.__cause__, errors.PluginError) and error.__cause__.code:
            out.codes.append(error.__cause__.code)
    else:
        logging.getLogger("hardpoint_plugin").error("a call failed", exc_info=error)
    return out


def _text(error):
    """What an exception says: the plugin's own errors their text; any other, which the
    author did not mean to raise, its type and its line, too."""
    text = str(error)
    if isinstance(error, errors.PluginError) and text:
        return text
    package = os.path.dirname(__file__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(f.filename) != package]
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}".removesuffix(": ") + where


class Kind:
    """The services of one kind, for a set of plugin classes."""

    def __init__(self, classes):
        self.classes = {c.name: c for c in classes}

    def lookup(self, name):
        if name in self.classes:
            return self.classes[name]
        raise errors.ConfigError(f'the plugin process does not serve "{name}", but {", ".join(sorted(self.classes))}')

    def close(self):
        """Ends what the host left open."""
