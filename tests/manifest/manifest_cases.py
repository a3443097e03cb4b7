# ruff: noqa: E501 - an expected line is one string
"""Manifests that are wrong, each with every line that is reported; shared by the tests of loader and schema."""

from __future__ import annotations

from dataclasses import dataclass

MINIMAL = """\
schema = 1
[pipeline]
name = "demo"
version = "1.0.0"
entry = "main.py:main"
"""

FULL = """\
schema = 1

[pipeline]
name = "Torch-pipeline_2.x"
version = "1.0.0-rc.1+build.5"
entry = "examples/walk.py:Robot.export"
args = { steps = 3, scale = 0.5, names = ["a", "b"], deep = { on = true } }
frequency_hz = 50
trace = "walk"

[export]
formats = ["jit", "pt2", "onnx"]
onnx = { opset = 18, ir_version = 9, metadata = ["licence", "runs"] }
rtol = 1e-4
atol = 0

[nodes.policy]
formats = ["exported-program"]
onnx.opset = 21
onnx.metadata = []
reset = "fresh"
state = { hidden = "zeros", "last.q" = "first-input:q", bias = "constant" }
[nodes.policy.ports."joint pos"]
kind = "state/joint/position"
element_names = [{ temporal_period_ms = 20 }, [], ["hip", "knee"]]
unit = "rad"
range = [-3, [3.5, 2]]
description = "As the encoders say."
[nodes.policy.ports]
gain = { element_names = "all" }
legs = { element_names = ["left", "right"] }
[nodes."observation.state"]
formats = []
atol = 1e-2

[session]
python = "tools/python"
pass_env = ["HF_TOKEN", "_X1"]
seed = 7
threads = 2
timeout_s = 0.5
network = true
inputs = ["data/*.npz", "weights", "../shared/map.bin"]

[probe]
args = { steps = 4 }
seed = 90
runs = 3
inputs = { "data/a.npz" = "data/b.npz" }
[probe.ports]
"policy/command" = { range = [-1, 1.5] }
"policy/mode" = { choices = [0, 2.5, true] }
"policy/gait" = { one-hot = true }
"policy/base quat" = { unit-quaternion = true }
"policy/order" = { permute = true }
"policy/image" = { file = "data/image.safetensors" }

[allow]
branches = ["walk:main.<locals>.step"]
escapes = ["robots.walk:Robot.export"]
random = ["walk:noise"]
untraced = ["walk:native"]
not-varied = ["policy/clock"]
no-element-names = ["policy/image"]

[metadata]
licence = "Apache-2.0"
trained = 2026-02-03
runs = [{ at = 2026-02-03T04:05:06Z, loss = 0.5 }]
"""
"""Every key there is; ``disk`` makes the files that it names."""

DISK = (
    "main.py",
    "examples/walk.py",
    "tools/python",
    "data/a.npz",
    "data/b.npz",
    "data/image.safetensors",
    "weights/deep/w.pt",
    "../shared/map.bin",
)


@dataclass(frozen=True)
class Bad:
    name: str
    text: str
    lines: tuple[str, ...]
    """What is reported, in order; ``{file}`` is the manifest, ``{root}`` the project."""
    in_schema: bool = True
    """Whether JSON Schema can see it too."""


def bad(name: str, more: str, *lines: str, in_schema: bool = True) -> Bad:
    """A minimal manifest with ``more`` behind it; ``more`` begins on line 6."""
    return Bad(name, MINIMAL + more, lines, in_schema)


def pipeline(name: str, old: str, new: str, *lines: str, in_schema: bool = True) -> Bad:
    """A minimal manifest in which one thing is written otherwise."""
    assert MINIMAL.count(old) == 1
    return Bad(name, MINIMAL.replace(old, new), lines, in_schema)


KNOWN_FORMATS = "torchscript, jit, jit-script, jit-trace, pt2, exported-program, onnx, onnx-dynamo, onnx-torchscript"
FORMS = "'file.py:callable', 'package.module:callable', 'file.py', '-m package.module'"
HINTS = "range, choices, one-hot, unit-quaternion, permute, file"
ONE_NAME_EACH = (
    "Give one name per element of an axis, each once: a list for the last axis, or a list with an entry per axis, "
    "None for one without names and TemporalAxis(period_ms) for one of moments."
)
A_RANGE = "Write [-3.14, 3.14], or a list for each bound with one number for each element of the last axis."
LINE_NAME = "{file}:3, pipeline.name: "
LINE_VERSION = "{file}:4, pipeline.version: "
NEWER = (
    "{file}:1, schema: this version of LEAPP reads manifests with schema = 1, not 2."
    " A newer leapp-build wrote it; `leapp doctor` shows which one runs."
)
LINE_ENTRY = "{file}:5, pipeline.entry: "
NAME_RULE = "cannot name a pipeline; use letters, digits, '.', '_', '-', and a letter or digit first."
SEMVER_RULE = "is not a version of Semantic Versioning 2.0, such as '1.0.0'."

BAD = (
    # --- the document ---
    Bad(
        "empty",
        "",
        ("{file}, pipeline: this table is required and missing.", "{file}, schema: this key is required and missing."),
    ),
    Bad(
        "no keys in [pipeline]",
        "schema = 1\n\n[pipeline]\n",
        (
            "{file}:3, pipeline.entry: this key is required and missing.",
            "{file}:3, pipeline.name: this key is required and missing.",
            "{file}:3, pipeline.version: this key is required and missing.",
        ),
    ),
    Bad(
        "another schema says no more",
        "schema = 2\npipeline = 3\n[thing]\nx = 1\n",
        (NEWER,),
    ),
    pipeline("schema is a string", "= 1", '= "1"', "{file}:1, schema: expected an integer, got a string."),
    pipeline("schema is true", "= 1", "= true", "{file}:1, schema: expected an integer, got true."),
    Bad(
        "pipeline is a string",
        'schema = 1\npipeline = "demo"\n',
        ("{file}:2, pipeline: expected a table, got a string.",),
    ),
    bad("unknown table", "[sesion]\nseed = 1\n", "{file}:6, sesion: unknown key. Did you mean 'session'?"),
    bad(
        "unknown table like none",
        "[xyzzy]\n",
        "{file}:6, xyzzy: unknown key. Known keys: schema, pipeline, export, nodes, session, probe, allow, metadata.",
    ),
    bad("unknown key with dots in it", '"a.b" = 1\n', '{file}:6, pipeline."a.b": unknown key. Known keys: name, version, '
        "entry, args, argv, frequency_hz, trace."),
    # --- [pipeline] ---
    bad("near key", "frequency = 50\n", "{file}:6, pipeline.frequency: unknown key. Did you mean 'frequency_hz'?"),
    bad("other case", "ARGS = {}\n", "{file}:6, pipeline.ARGS: unknown key. Did you mean 'args'?"),
    bad("key of another table", "formats = []\n",
        "{file}:6, pipeline.formats: unknown key here; it belongs to [export]."),
    bad("key of two other tables", "seed = 1\n",
        "{file}:6, pipeline.seed: unknown key here; it belongs to [session] or [probe]."),
    pipeline("name is a number", '"demo"', "3", LINE_NAME + "expected a string, got an integer."),
    pipeline("name has a slash", '"demo"', '"a/b"', LINE_NAME + f"'a/b' {NAME_RULE}"),
    pipeline("name begins with a dot", '"demo"', '".a"', LINE_NAME + f"'.a' {NAME_RULE}"),
    pipeline("name is empty", '"demo"', '""', LINE_NAME + f"'' {NAME_RULE}"),
    pipeline("name is not ASCII", '"demo"', '"größe"', LINE_NAME + f"'größe' {NAME_RULE}"),
    # Python's "$" lets a line break follow, and so does the library that reads the JSON Schema.
    pipeline("name ends in a line break", '"demo"', '"demo\\n"', LINE_NAME + f"'demo\\n' {NAME_RULE}", in_schema=False),
    pipeline("version has two parts", '"1.0.0"', '"1.0"', LINE_VERSION + f"'1.0' {SEMVER_RULE}"),
    pipeline("version has a v", '"1.0.0"', '"v1.0.0"', LINE_VERSION + f"'v1.0.0' {SEMVER_RULE}"),
    pipeline("version has a leading zero", '"1.0.0"', '"1.02.0"', LINE_VERSION + f"'1.02.0' {SEMVER_RULE}"),
    pipeline("version has foreign digits", '"1.0.0"', '"1.0.٣"', LINE_VERSION + f"'1.0.٣' {SEMVER_RULE}"),
    pipeline("version is a float", '"1.0.0"', "1.0", LINE_VERSION + "expected a string, got a float."),
    pipeline("version is a date", '"1.0.0"', "2026-01-02", LINE_VERSION + "expected a string, got a date or time."),
    pipeline("entry is a module alone", '"main.py:main"', '"robots.main"',
        LINE_ENTRY + f"'robots.main' is none of the forms {FORMS}. To run that module as a script, write '-m robots.main'."),
    pipeline("entry has two colons", '"main.py:main"', '"main.py::main"',
        LINE_ENTRY + f"'main.py::main' is none of the forms {FORMS}."),
    pipeline("entry has arguments", '"main.py:main"', '"main.py --fast"',
        LINE_ENTRY + f"'main.py --fast' is none of the forms {FORMS}."),
    pipeline("entry has a call", '"main.py:main"', '"main.py:main()"',
        LINE_ENTRY + f"'main.py:main()' is none of the forms {FORMS}."),
    pipeline("entry is empty", '"main.py:main"', '""', LINE_ENTRY + f"'' is none of the forms {FORMS}."),
    pipeline("entry is absolute", '"main.py:main"', '"/main.py"',
        LINE_ENTRY + "'/main.py' is absolute; entries are relative to the project root."),
    pipeline("entry is -m with a file", '"main.py:main"', '"-m main.py"',
        LINE_ENTRY + "'-m' takes a module, not a file: write 'main.py' alone to run a file.", in_schema=False),
    pipeline("entry file is missing", '"main.py:main"', '"mian.py:main"',
        LINE_ENTRY + "no file 'mian.py': looked for {root}/mian.py. Did you mean 'main.py'?", in_schema=False),
    pipeline("entry file is missing, folder too", '"main.py:main"', '"scripts/run.py"',
        LINE_ENTRY + "no file 'scripts/run.py': looked for {root}/scripts/run.py.", in_schema=False),
    pipeline("entry file is a folder", '"main.py:main"', '"folder.py"',
        LINE_ENTRY + "'folder.py' is a folder, not a file.", in_schema=False),
    bad("argv for a callable", 'argv = ["-v"]\n',
        "{file}:6, pipeline.argv: argv is for a script, and 'main.py:main' is a callable: use args."),
    pipeline("args for a script", '"main.py:main"', '"main.py"\nargs.x = 1',
        "{file}:6, pipeline.args: args are for a callable, and 'main.py' is a script: use argv."),
    pipeline("args for a module that is run", '"main.py:main"', '"-m main"\nargs.x = 1',
        "{file}:6, pipeline.args: args are for a callable, and '-m main' is a script: use argv."),
    bad("args is a list", "args = [1]\n", "{file}:6, pipeline.args: expected a table, got a list."),
    bad("args hold a date", "args = { day = [2026-01-02] }\n",
        "{file}:6, pipeline.args.day[0]: expected a JSON value, got a date or time: quote it and let the callable read it.",
        in_schema=False),
    bad("args hold infinity", "args.x.y = -inf\n", "{file}:6, pipeline.args.x.y: expected a finite number, got -inf.",
        in_schema=False),
    bad("argv holds a number", "argv = ['-n',\n3]\n", "{file}:6, pipeline.argv: argv is for a script, and 'main.py:main' "
        "is a callable: use args.", "{file}:7, pipeline.argv[1]: expected a string, got an integer."),
    bad("frequency is zero", "frequency_hz = 0\n", "{file}:6, pipeline.frequency_hz: expected a number above 0, got 0."),
    bad("frequency is negative", "frequency_hz = -1.5\n",
        "{file}:6, pipeline.frequency_hz: expected a number above 0, got -1.5."),
    bad("frequency is infinite", "frequency_hz = inf\n",
        "{file}:6, pipeline.frequency_hz: expected a finite number, got inf.", in_schema=False),
    bad("frequency is a boolean", "frequency_hz = true\n",
        "{file}:6, pipeline.frequency_hz: expected a number, got true."),
    bad("trace is empty", 'trace = ""\n', "{file}:6, pipeline.trace: must not be empty."),
    # --- [export] and [nodes] ---
    bad("formats is a string", '[export]\nformats = "onnx"\n',
        "{file}:7, export.formats: expected a list of strings, got a string."),
    bad("formats of a node is a number", "[nodes.policy]\nformats = 3\n",
        "{file}:7, nodes.policy.formats: expected a list of strings, got an integer."),
    bad("node with a dot", '[nodes."observation.state"]\nformats = [false]\n',
        '{file}:7, nodes."observation.state".formats[0]: expected a string, got false.'),
    bad("unknown format", '[export]\nformats = ["pt2", "onxx"]\n',
        "{file}:7, export.formats[1]: unknown format 'onxx'. Did you mean 'onnx'? Known formats: " + KNOWN_FORMATS + "."),
    bad("unknown format like none", '[export]\nformats = [\n"zip"]\n',
        "{file}:8, export.formats[0]: unknown format 'zip'. Known formats: " + KNOWN_FORMATS + "."),
    bad("formats in capitals", '[export]\nformats = ["ONNX"]\n',
        "{file}:7, export.formats[0]: unknown format 'ONNX'. Did you mean 'onnx'? Known formats: " + KNOWN_FORMATS + "."),
    bad("two formats, one file", '[export]\nformats = ["jit", "onnx", "jit-trace"]\n',
        "{file}:7, export.formats: 'jit' and 'jit-trace' write the same file, <node>.pt: keep one of them."),
    bad("one format twice, in a node", '[nodes.arm]\nformats = ["onnx", "onnx"]\n',
        "{file}:7, nodes.arm.formats: 'onnx' and 'onnx' write the same file, arm.onnx: keep one of them."),
    bad("clash beside an unknown format", '[nodes.arm]\nformats = ["pt2", "zip", "exported-program"]\n',
        "{file}:7, nodes.arm.formats: 'pt2' and 'exported-program' write the same file, arm.pt2: keep one of them.",
        "{file}:7, nodes.arm.formats[1]: unknown format 'zip'. Known formats: " + KNOWN_FORMATS + "."),
    bad("opset is a string", '[export]\nonnx = { opset = "20" }\n',
        "{file}:7, export.onnx.opset: expected an integer, got a string."),
    bad("opset is too low", "[nodes.a.onnx]\nopset = 6\n",
        "{file}:7, nodes.a.onnx.opset: expected an integer of at least 7, got 6."),
    bad("unknown key in onnx", "[export]\nonnx.ops = 20\n",
        "{file}:7, export.onnx.ops: unknown key. Did you mean 'opset'?"),
    bad("negative tolerance", "[export]\nrtol = -0.5\natol = nan\n",
        "{file}:7, export.rtol: expected a number of at least 0, got -0.5.",
        "{file}:8, export.atol: expected a finite number, got nan."),
    bad("a node is a list", "[nodes]\npolicy = ['onnx']\n", "{file}:7, nodes.policy: expected a table, got a list."),
    bad("near key in a node", "[nodes.policy]\nformat = []\n",
        "{file}:7, nodes.policy.format: unknown key. Did you mean 'formats'?"),
    bad("unknown start", '[nodes.a.state]\nh = "zero"\nk = "first-input"\n',
        "{file}:7, nodes.a.state.h: 'zero' is none of 'zeros', 'constant', 'first-input:PORT'. Did you mean 'zeros'?",
        "{file}:8, nodes.a.state.k: 'first-input' is none of 'zeros', 'constant', 'first-input:PORT'. Did you mean 'first-input:PORT'?"),
    bad("start from a port that cannot be", '[nodes.a.state]\nh = "first-input:b/c"\nk = "zeros:x"\n',
        "{file}:7, nodes.a.state.h: 'first-input:b/c' is none of 'zeros', 'constant', 'first-input:PORT'. Did you mean 'first-input:PORT'?",
        "{file}:8, nodes.a.state.k: 'zeros:x' is none of 'zeros', 'constant', 'first-input:PORT'. Did you mean 'zeros'?"),
    bad("start is a number", "[nodes.a]\nstate.h = 0\n", "{file}:7, nodes.a.state.h: expected a string, got an integer."),
    bad("states are a list", "[nodes.a]\nstate = ['h']\n", "{file}:7, nodes.a.state: expected a table, got a list."),
    bad("state that cannot be a port", '[nodes.a.state]\n"b/c" = "zeros"\n',
        "{file}:7, nodes.a.state.\"b/c\": 'b/c' cannot name a port: no '/', backslash, NUL or line break, and not '.' or '..'."),
    bad("reset that cannot be a port", '[nodes.a]\nreset = ".."\n',
        "{file}:7, nodes.a.reset: '..' cannot name a port: no '/', backslash, NUL or line break, and not '.' or '..'."),
    bad("near key of state", '[nodes.a]\nstates.h = "zeros"\n', "{file}:7, nodes.a.states: unknown key. Did you mean 'state'?"),
    bad("port facts of wrong types",
        '[nodes.a.ports.x]\nunit = 3\nrange = [1, true]\nkind = ""\ndescription = ["x"]\nelement_names = 3\nunits = "m"\n',
        "{file}:7, nodes.a.ports.x.unit: expected a string, got an integer.",
        "{file}:8, nodes.a.ports.x.range: it is no range, for its entries are neither numbers nor lists of numbers. " + A_RANGE,
        "{file}:9, nodes.a.ports.x.kind: must not be empty.",
        "{file}:10, nodes.a.ports.x.description: expected a string, got a list.",
        "{file}:11, nodes.a.ports.x.element_names: element_names is a int. Give one name, a list of them, or a list per "
        'axis: [TemporalAxis(20), ["hip", "knee"]].',
        "{file}:12, nodes.a.ports.x.units: unknown key. Did you mean 'unit'?"),
    bad("range of a port that runs backwards", "[nodes.a.ports]\nx.range = [1, 0.5]\ny.range = [[1, 2], [3, 2, 1]]\n",
        "{file}:7, nodes.a.ports.x.range: it is no range, for 1 is above 0.5. " + A_RANGE,
        "{file}:8, nodes.a.ports.y.range: it is no range, for its lists are 2 and 3 long. " + A_RANGE, in_schema=False),
    bad("element names given twice", '[nodes.a.ports.x]\nelement_names = ["hip", "hip"]\n',
        "{file}:7, nodes.a.ports.x.element_names: of the last axis: 'hip' stands there 2 times. " + ONE_NAME_EACH),
    bad("element names of two axes of moments",
        "[nodes.a.ports.x]\nelement_names = [{ temporal_period_ms = 2 }, { temporal_period_ms = 3 }]\n",
        "{file}:7, nodes.a.ports.x.element_names: hold more than one TemporalAxis. " + ONE_NAME_EACH),
    bad("axis of moments without a period", "[nodes.a.ports.x]\nelement_names = [{ period = 2 }]\n",
        "{file}:7, nodes.a.ports.x.element_names: the entry of axis 0 is a table with 'period'; an axis of moments is "
        "written { temporal_period_ms = 20 }."),
    bad("axis of moments with no period", "[nodes.a.ports.x]\nelement_names = [{ temporal_period_ms = 0 }]\n",
        "{file}:7, nodes.a.ports.x.element_names: period_ms=0 is no period. Give the time between two elements in "
        "milliseconds, a number above 0."),
    bad("port facts of what cannot be a port", '[nodes.a.ports."b/c"]\nunit = "m"\n',
        "{file}:6, nodes.a.ports.\"b/c\": 'b/c' cannot name a port: no '/', backslash, NUL or line break, and not '.' or '..'."),
    bad("ONNX metadata that is not there",
        '[export]\nonnx.metadata = ["license", "who"]\n[nodes.a]\nonnx.metadata = ["x"]\n[metadata]\nlicence = "MIT"\n',
        "{file}:7, export.onnx.metadata[0]: [metadata] has no key 'license'. Did you mean 'licence'?",
        "{file}:7, export.onnx.metadata[1]: [metadata] has no key 'who'. Its keys: licence.",
        "{file}:9, nodes.a.onnx.metadata[0]: [metadata] has no key 'x'. Its keys: licence.", in_schema=False),
    bad("node without a name", '[nodes.""]\n', '{file}:6, nodes."": must not be empty.'),
    # --- [session] ---
    bad("python is missing in PATH", '[session]\npython = "no-such-python"\n',
        "{file}:7, session.python: no program 'no-such-python' in PATH; write a path, or leave it out.", in_schema=False),
    bad("python is missing in the project", '[session]\npython = "./bin/python"\n',
        "{file}:7, session.python: no interpreter './bin/python': looked for {root}/bin/python.", in_schema=False),
    bad("variables", '[session]\npass_env = ["A=1",\n"", "OK"]\n',
        "{file}:7, session.pass_env[0]: 'A=1' cannot name an environment variable.",
        "{file}:8, session.pass_env[1]: '' cannot name an environment variable."),
    bad("seed is negative", "[session]\nseed = -1\n",
        "{file}:7, session.seed: expected an integer of at least 0, got -1."),
    bad("seed is too large", "[session]\nseed = 4_294_967_296\n",
        "{file}:7, session.seed: expected an integer below 4294967296, got 4294967296."),
    bad("seed is a boolean", "[session]\nseed = false\n", "{file}:7, session.seed: expected an integer, got false."),
    bad("seed is a float", "[session]\nseed = 1.5\n", "{file}:7, session.seed: expected an integer, got a float."),
    # JSON knows no difference between 1 and 1.0.
    bad("threads is 1.0", "[session]\nthreads = 1.0\n", "{file}:7, session.threads: expected an integer, got a float.",
        in_schema=False),
    bad("no threads", "[session]\nthreads = 0\n", "{file}:7, session.threads: expected an integer of at least 1, got 0."),
    bad("no time", "[session]\ntimeout_s = 0.0\n", "{file}:7, session.timeout_s: expected a number above 0, got 0.0."),
    bad("near key in session", "[session]\ntimeout = 3\n",
        "{file}:7, session.timeout: unknown key. Did you mean 'timeout_s'?"),
    bad("network is a number", "[session]\nnetwork = 1\n",
        "{file}:7, session.network: expected true or false, got an integer."),
    bad("inputs that match nothing", '[session]\ninputs = [\n  "main.py",\n  "checkpoints/*.pt",\n  "empty"]\n',
        "{file}:9, session.inputs[1]: 'checkpoints/*.pt' matches no file: looked for {root}/checkpoints/*.pt.",
        "{file}:10, session.inputs[2]: 'empty' matches no file: looked for {root}/empty.", in_schema=False),
    bad("an input is empty", '[session]\ninputs = [""]\n', "{file}:7, session.inputs[0]: must not be empty."),
    # --- [probe] ---
    bad("no runs", "[probe]\nruns = 0\n", "{file}:7, probe.runs: expected an integer of at least 1, got 0."),
    bad("argv of the probe for a callable", '[probe]\nargv = ["-v"]\n',
        "{file}:7, probe.argv: argv is for a script, and 'main.py:main' is a callable: use args."),
    pipeline("args of the probe for a script", '"main.py:main"', '"main.py"\n[probe.args]\nx = 1',
        "{file}:6, probe.args: args are for a callable, and 'main.py' is a script: use argv."),
    bad("args of the probe hold nan", "[probe]\nargs.x = nan\n", "{file}:7, probe.args.x: expected a finite number, got nan.",
        in_schema=False),
    bad("replaced files", '[probe.inputs]\n"main.py" = "none.npz"\n"lost.npz" = "main.py"\n"x" = 3\n',
        "{file}:7, probe.inputs.\"main.py\": no file 'none.npz': looked for {root}/none.npz.",
        "{file}:8, probe.inputs.\"lost.npz\": no file 'lost.npz': looked for {root}/lost.npz.",
        "{file}:9, probe.inputs.x: expected a string, got an integer."),
    bad("port without a node", "[probe]\nports.command = { permute = true }\n",
        "{file}:7, probe.ports.command: 'command' does not name a port; write 'node/port'."),
    bad("port without a hint", '[probe.ports."a/b"]\n',
        f'{{file}}:6, probe.ports."a/b": expected exactly one of {HINTS}, got none.'),
    bad("port with two hints", '[probe.ports]\n"a/b" = { permute = true, one-hot = true }\n',
        f'{{file}}:7, probe.ports."a/b": expected exactly one of {HINTS}, got \'permute\' and \'one-hot\'.'),
    bad("port with an unknown hint", '[probe.ports]\n"a/b" = { one_hot = true }\n',
        "{file}:7, probe.ports.\"a/b\".one_hot: unknown key. Did you mean 'one-hot'?"),
    bad("hint is false", '[probe.ports]\n"a/b".permute = false\n',
        '{file}:7, probe.ports."a/b".permute: expected true, got false; leave the key out instead.'),
    bad("hint is a number", '[probe.ports]\n"a/b".unit-quaternion = 1\n',
        '{file}:7, probe.ports."a/b".unit-quaternion: expected true, got an integer.'),
    bad("range with one end", '[probe.ports]\n"a/b".range = [1]\n',
        '{file}:7, probe.ports."a/b".range: expected a list of 2 numbers, got 1.'),
    bad("range with three ends", '[probe.ports]\n"a/b".range = [1, 2, 3]\n',
        '{file}:7, probe.ports."a/b".range: expected a list of 2 numbers, got 3.'),
    bad("range of strings", '[probe.ports]\n"a/b".range = ["1", 2]\n',
        '{file}:7, probe.ports."a/b".range[0]: expected a number, got a string.'),
    bad("range is a number", '[probe.ports]\n"a/b".range = 2\n',
        '{file}:7, probe.ports."a/b".range: expected a list of 2 numbers, got an integer.'),
    bad("range is swapped", '[probe.ports]\n"a/b".range = [1, -1.5]\n',
        '{file}:7, probe.ports."a/b".range: the first number must be below the second, got 1 and -1.5.', in_schema=False),
    bad("range is endless", '[probe.ports]\n"a/b".range = [0, inf]\n',
        '{file}:7, probe.ports."a/b".range[1]: expected a finite number, got inf.', in_schema=False),
    bad("no choices", '[probe.ports]\n"a/b".choices = []\n',
        '{file}:7, probe.ports."a/b".choices: expected a non-empty list of numbers or booleans, got an empty one.'),
    bad("choices are no list", '[probe.ports]\n"a/b".choices = {}\n',
        '{file}:7, probe.ports."a/b".choices: expected a non-empty list of numbers or booleans, got a table.'),
    bad("choices of strings", '[probe.ports]\n"a/b".choices = [1, "two"]\n',
        '{file}:7, probe.ports."a/b".choices[1]: expected a number or a boolean, got a string.'),
    bad("choices are not finite", '[probe.ports]\n"a/b".choices = [1, nan]\n',
        '{file}:7, probe.ports."a/b".choices[1]: expected a finite number, got nan.', in_schema=False),
    bad("value file of another kind", '[probe.ports]\n"a/b".file = "main.py"\n',
        '{file}:7, probe.ports."a/b".file: \'main.py\' is not a .safetensors file.'),
    bad("value file is missing", '[probe.ports]\n"a/b".file = "x.safetensors"\n',
        '{file}:7, probe.ports."a/b".file: no file \'x.safetensors\': looked for {root}/x.safetensors.', in_schema=False),
    # --- [allow] and [metadata] ---
    bad("functions and ports", '[allow]\nbranches = ["main"]\nnot-varied = ["x", "a/b/c"]\nescapes = "m:f"\n',
        "{file}:7, allow.branches[0]: 'main' does not name a function; write 'module:qualname', as messages of a build show it.",
        "{file}:8, allow.not-varied[0]: 'x' does not name a port; write 'node/port'.",
        "{file}:8, allow.not-varied[1]: 'a/b/c' does not name a port; write 'node/port'.",
        "{file}:9, allow.escapes: expected a list of strings, got a string."),
    bad("underscore for hyphen", "[allow]\nnot_varied = []\n", "{file}:7, allow.not_varied: unknown key. Did you mean 'not-varied'?"),
    bad("metadata is not finite", "[metadata]\nloss = [{ x = nan }]\n",
        "{file}:7, metadata.loss[0].x: expected a finite number, got nan.", in_schema=False),
    bad("metadata is a list", "[[metadata]]\nx = 1\n", "{file}:6, metadata: expected a table, got a list."),
)  # fmt: skip
