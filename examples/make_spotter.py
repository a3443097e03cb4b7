"""Write ``spotter.onnx``: a network that somebody else trained, as ``tracker.py`` finds it.

It stands for a perception model that arrives as a file: nobody here has its code. It says where the brightest spot of
an image is.
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

SIZE = 16
SHARPNESS = 12.0
"""Of the soft maximum: one bright pixel counts for more than all the dark ones."""


def main() -> None:
    rows, columns = np.meshgrid(np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE), indexing="ij")
    places = np.stack([columns.ravel(), rows.ravel()], axis=1).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["image", "flat_shape"], ["flat"]),
        helper.make_node("Mul", ["flat", "sharpness"], ["sharp"]),
        helper.make_node("Softmax", ["sharp"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "places"], ["spot"]),
    ]
    constants = {
        "flat_shape": np.array([1, SIZE * SIZE]),
        "sharpness": np.float32(SHARPNESS),
        "places": places,
    }
    graph = helper.make_graph(
        nodes,
        "spotter",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, SIZE, SIZE])],
        [helper.make_tensor_value_info("spot", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, Path(__file__).with_name("spotter.onnx"))


if __name__ == "__main__":
    main()
