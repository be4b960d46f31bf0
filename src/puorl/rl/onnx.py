"""Policies as ONNX files: from a raw observation to an action in the data's own units.

The graph holds the normaliser, the network and the range of the actions, so that any ONNX runtime
acts as `puorl.nn.numpy_mlp.NumpyPolicy` does, up to rounding. ONNX is a format of Protocol Buffers;
of it a policy needs so little that it is written here, without the package onnx: a message is a
sequence of fields, each with a number, a wire type and a value.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from puorl import __version__
from puorl.nn.numpy_mlp import NumpyPolicy

_IR_VERSION, _OPSET = 8, 17
"""Of ONNX 1.12: the first operators with layer normalisation; every runtime since reads them."""
_FLOAT = 1
_NORM_EPSILON = 1e-5
_SMALLEST_SIZE = 1e-8
INPUT, OUTPUT, CHANCES = "obs", "action", "probabilities"
"""Names of the graph's input (n, d) and output (n, m), both float32; of codes, probabilities."""


def to_onnx(policy: NumpyPolicy, properties: dict[str, str]) -> bytes:
    """Return the content of an ONNX file.

    Args:
        policy: What to write.
        properties: Texts to store with the graph, by name.
    """
    graph = _Graph()
    x = graph.add("Div", graph.add("Sub", INPUT, policy.mean), policy.scale)
    if policy.codes is not None:
        _add_chances(graph, policy, x)
        return _model(graph, policy.obs_dim, CHANCES, policy.act_dim, properties)
    if policy.kind in ("tanh", "clip"):
        y = _network(graph, policy, "", x)
    else:
        z = _avg_l1_norm(graph, _network(graph, policy, "encoder.", x, "Elu"))
        first = _avg_l1_norm(graph, _network(graph, policy, "linear.", x))
        y = _network(graph, policy, "mlp.", graph.add("Concat", first, z, axis=-1))
    one = np.ones(1, np.float32)
    unit = graph.add("Tanh", y) if policy.kind != "clip" else _between(graph, y, -one, one)
    low, high = policy.low, policy.high
    middle, reach = high / 2 + low / 2, high / 2 - low / 2
    action = graph.add("Add", graph.add("Mul", unit, reach), middle)
    graph.add("Identity", _between(graph, action, low, high), output=OUTPUT)
    return _model(graph, policy.obs_dim, OUTPUT, policy.act_dim, properties)


def _add_chances(graph: "_Graph", policy: NumpyPolicy, x: str) -> None:
    """Add the probabilities of all codes, 1 for a greedy choice."""
    if policy.kind == "softmax":
        graph.add("Softmax", _network(graph, policy, "", x), output=CHANCES, axis=-1)
        return
    values = _network(graph, policy, "q." if policy.kind == "bcq" else "", x)
    if policy.kind == "bcq":
        logits = _network(graph, policy, "behaviour.", x)
        below = graph.add("Sub", logits, graph.add("ReduceMax", logits, axes=[-1], keepdims=1))
        with np.errstate(divide="ignore"):
            least = np.log(policy.arrays["threshold"])
        allowed = graph.add("GreaterOrEqual", below, least)
        values = graph.add("Where", allowed, values, np.full(1, -np.inf, np.float32))
    best = graph.add("ReduceMax", values, axes=[-1], keepdims=1)
    graph.add("Cast", graph.add("Equal", values, best), output=CHANCES, to=_FLOAT)


def _network(
    graph: "_Graph", policy: NumpyPolicy, prefix: str, x: str, activation: str = "Relu"
) -> str:
    arrays, i = policy.arrays, 0
    while f"{prefix}{i}.w" in arrays:
        name = f"{prefix}{i}"
        x = graph.add("Add", graph.add("MatMul", x, arrays[f"{name}.w"]), arrays[f"{name}.b"])
        i += 1
        if f"{prefix}{i}.w" not in arrays:
            break
        if f"{name}.norm.scale" in arrays:
            norm = arrays[f"{name}.norm.scale"], arrays[f"{name}.norm.offset"]
            x = graph.add("LayerNormalization", x, *norm, axis=-1, epsilon=_NORM_EPSILON)
        x = graph.add(activation, x)
    return x


def _avg_l1_norm(graph: "_Graph", x: str) -> str:
    size = graph.add("ReduceMean", graph.add("Abs", x), axes=[-1], keepdims=1)
    return graph.add("Div", x, graph.add("Max", size, np.full(1, _SMALLEST_SIZE, np.float32)))


def _between(graph: "_Graph", x: str, low: np.ndarray, high: np.ndarray) -> str:
    return graph.add("Min", graph.add("Max", x, low), high)


class _Graph:
    """Nodes and constants in the order in which they are added, as messages."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []

    def add(
        self, operator: str, *inputs: str | np.ndarray, output: str = "", **attributes: Any
    ) -> str:
        """Add a node; return the name of its output."""
        names = [self._constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        output = output or f"x{len(self.nodes)}"
        node = [_text(1, name) for name in names]
        node += [_text(2, output), _text(3, f"{operator}_{len(self.nodes)}"), _text(4, operator)]
        node += [_message(5, _attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(b"".join(node))
        return output

    def _constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        held = np.ascontiguousarray(array, np.float32)
        parts = [_number(1, size) for size in held.shape]
        parts += [_number(2, _FLOAT), _text(8, name), _bytes(9, held.tobytes())]
        self.constants.append(b"".join(parts))
        return name


def _model(
    graph: _Graph, obs_dim: int, output: str, act_dim: int, properties: dict[str, str]
) -> bytes:
    content = [_message(1, node) for node in graph.nodes]
    content += [_text(2, "policy")]
    content += [_message(5, constant) for constant in graph.constants]
    content += [_message(11, _value(INPUT, obs_dim)), _message(12, _value(output, act_dim))]
    entries = [_text(1, name) + _text(2, text) for name, text in sorted(properties.items())]
    model = [
        _number(1, _IR_VERSION),
        _text(2, "puorl"),
        _text(3, __version__),
        _message(7, b"".join(content)),
        _message(8, _number(2, _OPSET)),
        *(_message(14, entry) for entry in entries),
    ]
    return b"".join(model)


def _value(name: str, width: int) -> bytes:
    """Describe a matrix of any number of rows."""
    shape = _message(1, _text(2, "n")) + _message(1, _number(1, width))
    tensor = _number(1, _FLOAT) + _message(2, shape)
    return _text(1, name) + _message(2, _message(1, tensor))


def _attribute(name: str, value: float | int | Sequence[int]) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + b"\x15" + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, each) for each in value) + _number(20, 7)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers count down from 2^64
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


_message = _bytes


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())
