"""The few lines that run one bundle, in Python, C++ and JavaScript: complete programs with this bundle's own names.

Python: with LEAPP, and without it. C++: with ONNX Runtime where every node has an ONNX file, else with LibTorch.
JavaScript: with ONNX Runtime.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leapp._dtypes import BY_NAME
from leapp.bundle.samples import read_tensors
from leapp.bundle.schema import PARTIAL
from leapp.errors import PartialBundleError, SnippetError
from leapp.report.facts import FIRST_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import Port
    from leapp.report.facts import Facts, NodeFacts

LANGUAGES: Final = ("python", "cpp", "js")
_TICKS: Final = 3
_BACKENDS: Final = {"onnx": "ONNX", "jit": "TorchScript", "pt2": "PT2"}
_JS_ARRAYS: Final[Mapping[str, str]] = {
    "float16": "Uint16Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int8": "Int8Array",
    "int16": "Int16Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "uint8": "Uint8Array",
    "uint16": "Uint16Array",
    "uint32": "Uint32Array",
    "uint64": "BigUint64Array",
    "bool": "Uint8Array",
}


@dataclass(frozen=True, slots=True)
class _Input:
    port: str
    key: str
    """Where its value comes from, as ``node/port``: the output that feeds it in the same tick, else itself."""
    first: str | None
    """Where its value comes from at the first tick, when that is another input."""


@dataclass(frozen=True, slots=True)
class _Model:
    node: str
    backend: str
    path: str
    external: bool
    inputs: tuple[_Input, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Start:
    """A stored value of the first tick that is not zero: it is read from the file of initial values."""

    key: str
    offset: int
    """In bytes, from the beginning of the file."""
    size: int


@dataclass(frozen=True, slots=True)
class _Program:
    """What every language has to say."""

    folder: str
    models: tuple[_Model, ...]
    ports: Mapping[str, Port]
    """Every port by ``node/port``. An input and an output of one name agree in type and shape: one is fed back."""
    given: tuple[str, ...]
    """Outer inputs."""
    wanted: tuple[str, ...]
    """Outer outputs."""
    feedback: tuple[tuple[str, str], ...]
    """Output and the input that it is at the next tick."""
    initial_values: str
    starts: tuple[_Start, ...]

    @property
    def first(self) -> bool:
        """Whether the first tick differs from the others."""
        return any(each.first for model in self.models for each in model.inputs)


def snippet(facts: Facts, folder: Path, language: str) -> str:
    """A program that loads a bundle and runs it for a few ticks on zeros.

    Args: folder: of the bundle, as the program is to name it. language: one of ``LANGUAGES``.

    Raises:
        PartialBundleError: the bundle has the models of one node alone.
        SnippetError: a node has no model file that this language can load.
    """
    if facts.status == PARTIAL:
        raise PartialBundleError(path=folder)
    write: Callable[[Facts, Path], str] = {"python": _python, "cpp": _cpp, "js": _js}[language]
    return write(facts, folder)


def python_snippets(facts: Facts, folder: Path, backends: Sequence[str] = ("onnx", "jit", "pt2")) -> tuple[str, str]:
    """The two programs in Python: with LEAPP's runtime, and without LEAPP, which takes the first backend there is."""
    program = _program(facts, folder, backends, "Python")
    return _with_leapp(program), _without_leapp(program)


def _program(facts: Facts, folder: Path, backends: Sequence[str], language: str) -> _Program:
    source_of = {target: source for source, targets in facts.data_flow.items() for target in targets}
    models = []
    for node in facts.nodes:
        name = node.spec.name
        artifact = next((each for kind in backends for each in node.artifacts if each.backend == kind), None)
        if artifact is None:
            raise SnippetError(
                language=language,
                node=name,
                needed=" or ".join(_BACKENDS[each] for each in backends),
                known=", ".join(each.format for each in node.artifacts) or "none",
            )
        inputs = tuple(_input(port, name, source_of) for port in node.spec.inputs)
        outputs = tuple(port.name for port in node.spec.outputs)
        models.append(_Model(name, artifact.backend, artifact.path, artifact.external, inputs, outputs))
    ports = {
        f"{node.spec.name}/{port.name}": port
        for node in facts.nodes
        for port in (*node.spec.inputs, *node.spec.outputs)
    }
    return _Program(
        str(folder),
        tuple(models),
        ports,
        tuple(f"{node}/{port}" for node, names in facts.inputs.items() for port in names),
        tuple(f"{node}/{port}" for node, names in facts.outputs.items() for port in names),
        tuple((source, target) for source, targets in facts.feedback_flow.items() for target in targets),
        facts.initial_values,
        _stored(facts, folder),
    )


def _input(port: Port, node: str, source_of: Mapping[str, str]) -> _Input:
    key = f"{node}/{port.name}"
    start, first = port.semantics.get("start"), None
    if isinstance(start, str) and start.startswith(FIRST_INPUT):
        other = f"{node}/{start.removeprefix(FIRST_INPUT)}"
        first = source_of.get(other, other)
    return _Input(port.name, source_of.get(key, key), first)


def _stored(facts: Facts, folder: Path) -> tuple[_Start, ...]:
    if not facts.initial_values:
        return ()
    path = folder / facts.initial_values
    tensors = read_tensors(path)
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    return tuple(
        _Start(key, begin + header[key]["data_offsets"][0], len(tensor.data))
        for key, tensor in tensors.items()
        if any(tensor.data)
    )


def _kept(program: _Program) -> list[tuple[str, str]]:
    """Feedback in an order in which no value is overwritten before it is read: values are read from outputs only."""
    return sorted(program.feedback, key=lambda pair: pair[1])


# --- Python --------------------------------------------------------------------------------------------------------


def _python(facts: Facts, folder: Path) -> str:
    first, second = python_snippets(facts, folder)
    return f"# --- with LEAPP\n{first}\n\n# --- without LEAPP\n{second}"


def _with_leapp(program: _Program) -> str:
    folders = ", model_dirs=[...]  # the folders of the model files that are not in the bundle\n"
    external = any(model.external for model in program.models)
    call = f"leapp.InferenceManager({_p(program.folder)}{folders if external else ''})"
    return f"""\
import leapp
import numpy as np

runtime = {call}  # checks every digest, loads every model once
inputs = {{
{_zeros(program)}}}
for _ in range({_TICKS}):  # what is fed back is held from tick to tick; runtime.reset() starts anew
    outputs = runtime(inputs)
print({{port: tuple(value.shape) for port, value in outputs.items()}})
"""


def _p(text: str) -> str:
    """A string of Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _names(names: Sequence[str]) -> str:
    return f"[{', '.join(map(_p, names))}]"


def _zeros(program: _Program) -> str:
    lines = []
    for key in program.given:
        spec = program.ports[key].spec
        kind = "uint16" if spec.dtype == "bfloat16" else spec.dtype  # NumPy has none: its bits
        lines.append(f'    {_p(key)}: np.zeros({tuple(spec.shape)}, "{kind}"),\n')
    return "".join(lines)


def _without_leapp(program: _Program) -> str:
    if any(port.spec.dtype == "bfloat16" for port in program.ports.values()):
        return "# NumPy has no bfloat16: use LEAPP's runtime.\n"
    backends = {model.backend for model in program.models}
    torch = bool(backends & {"jit", "pt2"})
    imports = ["import numpy as np"]
    imports += ["import onnxruntime"] if "onnx" in backends else []
    imports += ["import torch"] if torch else []
    imports += ["from safetensors.numpy import load_file"] if program.initial_values else []
    loaders = {"onnx": "onnxruntime.InferenceSession({})", "jit": "torch.jit.load({})",
               "pt2": "torch.export.load({}).module()"}  # fmt: skip
    models = "".join(
        f"    {_p(model.node)}: {loaders[model.backend].format(_python_path(model))},\n" for model in program.models
    )
    state = f"load_file(BUNDLE + {_p('/' + program.initial_values)})" if program.initial_values else "{}"
    body = "".join(line for model in program.models for line in _python_call(model))
    keep = "".join(f"    state[{_p(target)}] = values[{_p(source)}]\n" for source, target in _kept(program))
    first = ", first" if program.first else ""
    call = "tick(inputs, first=number == 0)" if program.first else "tick(inputs)"
    return f"""\
{chr(10).join(imports)}

BUNDLE = {_p(program.folder)}
models = {{
{models}}}
state = {state}  # what is fed back, at the first tick


def tick(inputs{first}):
    values = {{**state, **inputs}}
{body}{keep}    return {{port: values[port] for port in {_names(program.wanted)}}}


inputs = {{
{_zeros(program)}}}
for number in range({_TICKS}):
    outputs = {call}
print({{port: value.shape for port, value in outputs.items()}})
"""


def _python_path(model: _Model) -> str:
    return f"{_p(model.path)}" if model.external else f"BUNDLE + {_p('/' + model.path)}"


def _python_call(model: _Model) -> list[str]:
    lines = [
        f"    if first:\n        values[{_p(each.key)}] = values[{_p(each.first)}]\n"
        for each in model.inputs
        if each.first
    ]
    if model.backend == "onnx":
        fed = "".join(f"        {_p(each.port)}: values[{_p(each.key)}],\n" for each in model.inputs)
        lines.append(f"    results = models[{_p(model.node)}].run({_names(model.outputs)}, {{\n{fed}    }})\n")
    else:
        fed = "".join(f"            torch.from_numpy(values[{_p(each.key)}]),\n" for each in model.inputs)
        lines.append(f"    with torch.inference_mode():\n        results = models[{_p(model.node)}](\n{fed}        )\n")
        many = "results" if len(model.outputs) > 1 else "[results]"
        lines.append(f"    results = [each.numpy() for each in {many}]\n")
    keys = _names([f"{model.node}/{output}" for output in model.outputs])
    return [*lines, f"    values.update(zip({keys}, results))\n"]


# --- C++ -----------------------------------------------------------------------------------------------------------


def _cpp(facts: Facts, folder: Path) -> str:
    if all(_has(node, "onnx") for node in facts.nodes) or not all(_has(node, "jit") for node in facts.nodes):
        return _cpp_onnx(_program(facts, folder, ("onnx",), "C++"))
    return _cpp_torch(_program(facts, folder, ("jit",), "C++"))


def _has(node: NodeFacts, backend: str) -> bool:
    return any(each.backend == backend for each in node.artifacts)


def _cpp_onnx(program: _Program) -> str:
    keys = {each.key for model in program.models for each in model.inputs} | {*program.given}
    keys |= {f"{model.node}/{output}" for model in program.models for output in model.outputs}
    values = "".join(
        f"    {{{_c(key)}, {{ONNX_TENSOR_ELEMENT_DATA_TYPE_{_onnx_type(program.ports[key])}, "
        f"{{{_sizes(program.ports[key])}}}, {_size_bytes(program.ports[key])}}}}},\n"
        for key in sorted(keys | _inputs_of_feedback(program))
    )
    sessions = "".join(
        f"    sessions.emplace({_c(model.node)}, Ort::Session(env, ({_cpp_path(model)}).c_str(), options));\n"
        for model in program.models
    )
    calls = "".join(
        "".join(
            f"        if (number == 0) values.at({_c(each.key)}).data = values.at({_c(each.first)}).data;\n"
            for each in model.inputs
            if each.first
        )
        + f"        run(sessions.at({_c(model.node)}),\n"
        f"            {{{', '.join(_c(each.port) for each in model.inputs)}}},\n"
        f"            {{{', '.join(_c(each.key) for each in model.inputs)}}},\n"
        f"            {{{', '.join(_c(each) for each in model.outputs)}}},\n"
        f"            {{{', '.join(_c(f'{model.node}/{each}') for each in model.outputs)}}});\n"
        for model in program.models
    )
    keep = "".join(
        f"        values.at({_c(target)}).data = values.at({_c(source)}).data;\n" for source, target in _kept(program)
    )
    outputs = "".join(
        f'    std::printf("%s: %zu bytes\\n", {_c(key)}, values.at({_c(key)}).data.size());\n' for key in program.wanted
    )
    return f"""\
// C++17, ONNX Runtime: g++ -std=c++17 run.cpp -lonnxruntime
#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

const std::string BUNDLE = {_c(program.folder)};

struct Tensor {{
    ONNXTensorElementDataType type;
    std::vector<int64_t> shape;
    std::vector<char> data;
    Tensor(ONNXTensorElementDataType type, std::vector<int64_t> shape, size_t bytes)
        : type(type), shape(std::move(shape)), data(bytes) {{}}
    Ort::Value view() {{
        static const auto cpu = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
        return Ort::Value::CreateTensor(cpu, data.data(), data.size(), shape.data(), shape.size(), type);
    }}
}};

// Every value of the pipeline by node/port; all are zero at first. An input is named after the output that feeds it.
std::map<std::string, Tensor> values = {{
{values}}};

void run(Ort::Session& session, std::vector<const char*> inputs, std::vector<std::string> from,
         std::vector<const char*> outputs, std::vector<std::string> to) {{
    std::vector<Ort::Value> x, y;
    for (auto& key : from) x.push_back(values.at(key).view());
    for (auto& key : to) y.push_back(values.at(key).view());
    session.Run(Ort::RunOptions{{}}, inputs.data(), x.data(), x.size(), outputs.data(), y.data(), y.size());
}}

int main() {{
    Ort::Env env;
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);
    std::map<std::string, Ort::Session> sessions;
{sessions}{_cpp_starts(program, "values.at({}).data.data()")}
    for (int number = 0; number < {_TICKS}; number++) {{
        // Write the tick's inputs here: {_comment(program.given)}
{calls}{keep}    }}
{outputs}}}
"""


def _inputs_of_feedback(program: _Program) -> set[str]:
    return {target for _, target in program.feedback}


def _cpp_torch(program: _Program) -> str:
    zeros = "".join(
        f"        {{{_c(key)}, torch::zeros({{{_sizes(port)}}}, torch::{_torch_type(port)})}},\n"
        for key in sorted({*program.given} | _inputs_of_feedback(program))
        for port in [program.ports[key]]
    )
    loads = "".join(
        f"    models.emplace({_c(model.node)}, torch::jit::load({_cpp_path(model)}));\n" for model in program.models
    )
    calls = ""
    for number, model in enumerate(program.models):
        for each in model.inputs:
            if each.first:
                calls += f"        if (number == 0) values[{_c(each.key)}] = values.at({_c(each.first)}).clone();\n"
        fed = ", ".join(f"values.at({_c(each.key)})" for each in model.inputs)
        calls += f"        auto result{number} = models.at({_c(model.node)}).forward({{{fed}}});\n"
        for at, output in enumerate(model.outputs):
            one = f"result{number}.toTensor()"
            several = f"result{number}.toTuple()->elements()[{at}].toTensor()"
            key = _c(f"{model.node}/{output}")
            calls += f"        values[{key}] = {several if len(model.outputs) > 1 else one};\n"
    keep = "".join(
        f"        values[{_c(target)}] = values.at({_c(source)}).clone();\n" for source, target in _kept(program)
    )
    outputs = "".join(
        f"    std::cout << {_c(key)} << values.at({_c(key)}).sizes() << '\\n';\n" for key in program.wanted
    )
    return f"""\
// C++20, LibTorch: its CMake package finds headers and libraries.
#include <torch/script.h>

#include <fstream>
#include <iostream>
#include <map>
#include <string>

const std::string BUNDLE = {_c(program.folder)};

int main() {{
    torch::InferenceMode inference;
    std::map<std::string, torch::jit::Module> models;
{loads}
    // Every value of the pipeline by node/port. An input is named after the output that feeds it.
    std::map<std::string, torch::Tensor> values = {{
{zeros}    }};
{_cpp_starts(program, "values.at({}).data_ptr()")}
    for (int number = 0; number < {_TICKS}; number++) {{
        // Write the tick's inputs here: {_comment(program.given)}
{calls}{keep}    }}
{outputs}}}
"""


def _cpp_starts(program: _Program, memory: str) -> str:
    if not program.starts:
        return ""
    reads = "".join(
        f"    file.seekg({each.offset});\n"
        f"    file.read(static_cast<char*>({memory.format(_c(each.key))}), {each.size});\n"
        for each in program.starts
    )
    return (
        "    // What is fed back and does not start as zeros, at its place in the file of initial values.\n"
        f"    std::ifstream file(BUNDLE + {_c('/' + program.initial_values)}, std::ios::binary);\n{reads}"
    )


def _cpp_path(model: _Model) -> str:
    return f"std::string({_c(model.path)})" if model.external else f"BUNDLE + {_c('/' + model.path)}"


def _sizes(port: Port) -> str:
    return ", ".join(map(str, port.spec.shape))


def _size_bytes(port: Port) -> int:
    return math.prod(port.spec.shape) * BY_NAME[port.spec.dtype].size_bytes


def _onnx_type(port: Port) -> str:
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(port.spec.dtype, port.spec.dtype.upper())


def _torch_type(port: Port) -> str:
    return "k" + {"bool": "Bool", "uint8": "UInt8", "bfloat16": "BFloat16"}.get(
        port.spec.dtype, port.spec.dtype.replace("uint", "UInt").capitalize()
        if not port.spec.dtype.startswith("u") else port.spec.dtype.replace("uint", "UInt")
    )  # fmt: skip


def _c(text: str) -> str:
    """A string of C++. What is not plain ASCII is written byte by byte, so that no compiler takes it for another."""
    escaped = {ord('"'): '\\"', ord("\\"): "\\\\"}
    plain = "".join(
        escaped.get(byte) or (chr(byte) if 32 <= byte < 127 and byte != ord("?") else f"\\{byte:03o}")
        for byte in text.encode()
    )
    return f'"{plain}"'


def _comment(keys: Sequence[str]) -> str:
    return ", ".join(map(_c, keys)) or "there are none"


# --- JavaScript ----------------------------------------------------------------------------------------------------


def _js(facts: Facts, folder: Path) -> str:
    program = _program(facts, folder, ("onnx",), "JavaScript")
    for key, port in program.ports.items():
        if port.spec.dtype not in _JS_ARRAYS:
            raise SnippetError(
                language="JavaScript", node=key, needed="an element type that JavaScript has", known=port.spec.dtype
            )
    sessions = "".join(
        f"  {_s(model.node)}: await ort.InferenceSession.create({_js_path(model)}),\n" for model in program.models
    )
    starts = {each.key: each for each in program.starts}
    state = "".join(
        f"  {_s(key)}: {_js_tensor(program.ports[key], starts.get(key))},\n"
        for key in sorted(_inputs_of_feedback(program))
    )
    inputs = "".join(f"  {_s(key)}: {_js_tensor(program.ports[key], None)},\n" for key in program.given)
    calls = "".join(
        "".join(
            f"  if (number === 0) values[{_s(each.key)}] = values[{_s(each.first)}];\n"
            for each in model.inputs
            if each.first
        )
        + f"  result = await models[{_s(model.node)}].run({{\n"
        + "".join(f"    {_s(each.port)}: values[{_s(each.key)}],\n" for each in model.inputs)
        + "  });\n"
        + "".join(f"  values[{_s(f'{model.node}/{each}')}] = result[{_s(each)}];\n" for each in model.outputs)
        for model in program.models
    )
    keep = "".join(f"  state[{_s(target)}] = values[{_s(source)}];\n" for source, target in _kept(program))
    file = (
        f"const file = fs.readFileSync(BUNDLE + {_s('/' + program.initial_values)});\n"
        "const stored = (at, size) => file.buffer.slice(file.byteOffset + at, file.byteOffset + at + size);\n"
        if starts
        else ""
    )
    return f"""\
// Node.js, as a module (run.mjs), with onnxruntime-node; in a browser, with onnxruntime-web, BUNDLE is a URL.
import * as ort from "onnxruntime-node";
{'import fs from "node:fs";' + chr(10) if starts else ""}
const BUNDLE = {_s(program.folder)};
const models = {{
{sessions}}};
{file}// What is fed back, at the first tick.
const state = {{
{state}}};
const inputs = {{
{inputs}}};

let values, result;
for (let number = 0; number < {_TICKS}; number++) {{
  values = {{ ...state, ...inputs }};
{calls}{keep}}}
for (const port of {json.dumps([*program.wanted])}) console.log(port, values[port].dims);
"""


def _js_tensor(port: Port, start: _Start | None) -> str:
    array = _JS_ARRAYS[port.spec.dtype]
    content = str(math.prod(port.spec.shape)) if start is None else f"stored({start.offset}, {start.size})"
    return f"new ort.Tensor({_s(port.spec.dtype)}, new {array}({content}), [{_sizes(port)}])"


def _js_path(model: _Model) -> str:
    return _s(model.path) if model.external else f"BUNDLE + {_s('/' + model.path)}"


def _s(text: str) -> str:
    """A string of JavaScript."""
    return json.dumps(text)
