"""The forms that a policy is exported in: how each is written and read.

Every form is called with a batch of observations, [B, *obs] → [B, *act], normalization and action
scaling inside.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export as jax_export

from leeward import acting
from leeward.errors import CheckpointError, MissingExtra
from leeward.export import runner
from leeward.export.graph import INPUT, OUTPUT, Graph
from leeward.export.operators import graph_of, observation_type
from leeward.policy import Policy

Run = Callable[[np.ndarray], np.ndarray]
OPSET = 18
"""Of the ONNX standard: the first in which all reductions take their axes alike (2022)."""
IR_VERSION = 8
"""The file layout that came with it, so that runtimes since then read the files."""
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Where a StableHLO file runs."""
_ARCHIVE = re.compile(rb'^ARCHIVE = """\n([A-Za-z0-9+/=\n]*)"""$', re.MULTILINE)
"""The archive in a program of NumPy's form."""


class Form(NamedTuple):
    """One form."""

    suffix: str
    write: Callable[[Policy, Mapping[str, Any]], bytes]
    """(policy, card) → the file."""
    read: Callable[[Path, bytes], tuple[Mapping[str, Any] | None, Run]]
    """(path, file) → (card, the policy); None where the card is only beside the file."""


def write_onnx(policy: Policy, card: Mapping[str, Any]) -> bytes:
    """A model of the ONNX standard; the card is in its metadata.

    Raises:
        MissingExtra: the packages that write and check it are not installed.
        ConfigError: as `graph_of`.
    """
    _need("onnx", "onnx", "--format onnx")
    _need("onnxruntime", "onnxruntime", "--format onnx")
    return onnx_model(graph_of(policy), card).SerializeToString()


def onnx_model(graph: Graph, card: Mapping[str, Any]) -> Any:
    """The graph as a checked model."""
    import onnx
    from onnx import helper, numpy_helper

    def information(name: str) -> Any:
        described = card[name]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(described["dtype"]))
        return helper.make_tensor_value_info(name, kind, described["shape"])

    nodes = []
    for operator, inputs, outputs, attributes in graph.nodes:
        numbers = dict(attributes)
        if "to" in numbers:
            numbers["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(numbers["to"]))
        nodes.append(helper.make_node(operator, inputs, outputs, **numbers))
    model = helper.make_model(
        helper.make_graph(
            nodes,
            card["algorithm"],
            [information(INPUT)],
            [information(OUTPUT)],
            [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
        ),
        producer_name="leeward",
        producer_version=card["leeward"],
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {"leeward": json.dumps(card)})
    onnx.checker.check_model(model, full_check=True)
    return model


def read_onnx(path: Path, content: bytes) -> tuple[Mapping[str, Any], Run]:
    """An exported model in onnxruntime, on one thread: a small policy is slower on several.

    Raises:
        MissingExtra: onnxruntime is not installed.
        CheckpointError: damaged, or not exported by leeward.
    """
    _need("onnxruntime", "onnxruntime", str(path))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised; nothing is printed
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        card = json.loads(session.get_modelmeta().custom_metadata_map["leeward"])
    except KeyError as error:
        raise CheckpointError(f"{path} was not exported by leeward: it has no card") from error
    except Exception as error:  # onnxruntime has an exception of its own for every fault
        raise CheckpointError(f"{path} is damaged or no ONNX file") from error
    return card, lambda observation: np.asarray(session.run([OUTPUT], {INPUT: observation})[0])


def write_numpy(policy: Policy, card: Mapping[str, Any]) -> bytes:
    """runner.py with an archive in it: arrays, and the operators that use them.

    Raises:
        ConfigError: as `graph_of`.
    """
    graph = graph_of(policy)
    program = {
        "format": runner.FORMAT,
        "card": card,
        "nodes": [node._asdict() for node in graph.nodes],
    }
    text = np.frombuffer(json.dumps(program).encode(), np.uint8)
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, program=text, **graph.constants)
    encoded = b'ARCHIVE = """\n' + base64.encodebytes(archive.getvalue()) + b'"""\n'
    source = Path(runner.__file__).read_bytes().replace(b"\r\n", b"\n")
    before, after = source.split(b'\nARCHIVE = ""\n')
    return before + b"\n" + encoded + after


def read_numpy(path: Path, content: bytes) -> tuple[Mapping[str, Any], Run]:
    """An exported program, whose archive is read; the program itself is never run.

    Raises:
        CheckpointError: damaged, or not exported by leeward.
    """
    try:
        found = _ARCHIVE.search(content)
        if found is None:
            raise ValueError("it has no ARCHIVE")
        content = base64.b64decode(found[1])
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(m.compress_type != zipfile.ZIP_STORED for m in archive.infolist()):
                raise ValueError("compressed")  # ours never are: no file unpacks to more than it is
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            policy = runner.Policy({name: archive[name] for name in archive.files})
    except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{path} is damaged, or no policy that this version of leeward exported ({error})"
        ) from error
    return policy.card, policy.batch


def write_stablehlo(policy: Policy, card: Mapping[str, Any]) -> bytes:
    """A program of StableHLO, serialized by `jax.export`, the weights in it.

    Raises:
        MissingExtra: the package that serializes it is not installed.
    """
    _need("flatbuffers", "flatbuffers", "--format stablehlo")
    (batch,) = jax_export.symbolic_shape("batch")

    def call(observation: Any) -> Any:
        return acting.act(
            policy.algorithm.act, policy.spec, policy.policy, policy.scaling, observation
        )

    exported = jax_export.export(jax.jit(call), platforms=PLATFORMS)
    return bytes(exported(observation_type(policy.spec, batch)).serialize())


def read_stablehlo(path: Path, content: bytes) -> tuple[None, Run]:
    """An exported program; it cannot hold its card.

    Raises:
        MissingExtra: the package that reads it is not installed.
        CheckpointError: damaged.
    """
    _need("flatbuffers", "flatbuffers", str(path))
    try:
        call = jax.jit(jax_export.deserialize(bytearray(content)).call)
    except Exception as error:  # flatbuffers raises whatever a damaged file leads to
        raise CheckpointError(f"{path} is damaged or no file of jax.export") from error
    return None, lambda observation: np.asarray(call(observation))


def _need(module: str, package: str, purpose: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(package, "export", purpose)


FORMS = {
    "onnx": Form(".onnx", write_onnx, read_onnx),
    "stablehlo": Form(".stablehlo", write_stablehlo, read_stablehlo),
    "numpy": Form(".py", write_numpy, read_numpy),
}
