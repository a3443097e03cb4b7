"""Products of a matrix and a vector, written as products of matrices.

onnxruntime fuses a transposed matrix into the product behind it (MatmulTransposeFusion, 1.20 to 1.32), and computes
``A.T @ v`` of a vector with one axis wrongly. With two axes it is right.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from leapp.export._onnx_numbers import call_before

_aten: Any = torch.ops.aten
_PRODUCTS: Final = frozenset((_aten.matmul.default, _aten.mv.default))


def with_matrix_products(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program, changed, with a matrix of one column or one row in place of each vector in a product with one."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _PRODUCTS:
            continue
        first, second = node.args
        ranks = first.meta["val"].dim(), second.meta["val"].dim()
        if 1 not in ranks or ranks == (1, 1):
            continue
        if ranks[0] == 1:
            axis, first = -2, call_before(graph, node, _aten.unsqueeze.default, first, 0)
        else:
            axis, second = -1, call_before(graph, node, _aten.unsqueeze.default, second, -1)
        product = call_before(graph, node, _aten.matmul.default, first, second)
        node.target, node.args = _aten.squeeze.dim, (product, axis)
    graph.lint()
    return program
