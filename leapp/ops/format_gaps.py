"""Functions that are recorded and that a format cannot hold, as the walk over all of them measured (``nox -s ops``).

The walk fails when an entry turns out to work, and when a function fails that is not here. Docs are written from it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Gap(NamedTuple):
    """Functions that share a reason and a way around it; names as in the walk, in-place and method forms included."""

    formats: tuple[str, ...]
    why: str
    instead: str
    names: tuple[str, ...]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FORMAT_GAPS: Final[tuple[Gap, ...]] = (
    Gap(
        ("pt2", "onnx"),
        "torch.export reads a value of the data while it traces them",
        "Write the formula with tensor operations; give one_hot its num_classes.",
        _names(
            "Tensor.corrcoef Tensor.cov Tensor.slice_inverse torch.choose_qparams_optimized torch.corrcoef "
            "torch.cov torch.ctc_loss torch.linalg.lstsq "
            "torch.nn.functional.one_hot torch.slice_inverse"
        ),
    ),
    Gap(
        ("onnx",),
        "ONNX has no such function, and no other operator makes it exactly",
        "Use a polynomial of your own over the range that you need, or export to .pt2.",
        _names(
            "Tensor.i0 Tensor.i0_ Tensor.igamma Tensor.igamma_ Tensor.igammac Tensor.igammac_ Tensor.polygamma "
            "Tensor.polygamma_ torch.i0 torch.igamma torch.igammac torch.polygamma torch.special.airy_ai "
            "torch.special.bessel_j0 torch.special.bessel_j1 torch.special.bessel_y0 torch.special.bessel_y1 "
            "torch.special.chebyshev_polynomial_t torch.special.chebyshev_polynomial_u "
            "torch.special.chebyshev_polynomial_v torch.special.chebyshev_polynomial_w torch.special.erfcx "
            "torch.special.gammainc torch.special.gammaincc torch.special.hermite_polynomial_h "
            "torch.special.hermite_polynomial_he torch.special.i0 torch.special.i0e torch.special.i1 "
            "torch.special.i1e torch.special.laguerre_polynomial_l torch.special.legendre_polynomial_p "
            "torch.special.log_ndtr torch.special.modified_bessel_i0 torch.special.modified_bessel_i1 "
            "torch.special.modified_bessel_k0 torch.special.modified_bessel_k1 torch.special.ndtri "
            "torch.special.polygamma torch.special.scaled_modified_bessel_k0 "
            "torch.special.scaled_modified_bessel_k1 torch.special.shifted_chebyshev_polynomial_t "
            "torch.special.shifted_chebyshev_polynomial_u torch.special.shifted_chebyshev_polynomial_v "
            "torch.special.shifted_chebyshev_polynomial_w torch.special.spherical_bessel_j0 torch.special.zeta"
        ),
    ),
    Gap(
        ("onnx",),
        "ONNX has no decomposition of matrices; inv, solve, cholesky, qr, slogdet and lu_factor are unrolled",
        "Use those, or export to .pt2.",
        _names(
            "Tensor.geqrf Tensor.matrix_exp Tensor.orgqr Tensor.ormqr Tensor.pinverse Tensor.svd torch.geqrf "
            "torch.linalg.cond torch.linalg.eig torch.linalg.eigh torch.linalg.eigvals torch.linalg.eigvalsh "
            "torch.linalg.householder_product torch.linalg.ldl_factor torch.linalg.ldl_factor_ex "
            "torch.linalg.ldl_solve torch.linalg.lu torch.linalg.matrix_exp torch.linalg.matrix_rank "
            "torch.linalg.pinv torch.linalg.svd torch.linalg.svdvals torch.lu_unpack torch.matrix_exp "
            "torch.nuclear_norm torch.orgqr torch.ormqr torch.pinverse torch.svd"
        ),
    ),
    Gap(
        ("onnx",),
        "the exporter has no complex form of a part of it",
        "Use rfft and irfft along one dimension, or real and imaginary parts.",
        _names(
            "Tensor.chalf Tensor.istft torch.fft.fft2 torch.fft.fftn torch.fft.ifft2 torch.fft.ifftn "
            "torch.fft.ihfft2 torch.fft.ihfftn torch.istft"
        ),
    ),
    Gap(
        ("onnx",),
        "how long the result is follows the data",
        "Multiply with a mask, or use torch.where.",
        _names(
            "Tensor.masked_select Tensor.nonzero_static Tensor.unique_consecutive "
            "torch.masked_select torch.nonzero_static torch.unique_consecutive"
        ),
    ),
    Gap(
        ("onnx",),
        "running statistics that training writes are not carried along",
        "Call eval() on the module.",
        _names("torch.instance_norm torch.nn.functional.instance_norm"),
    ),
    Gap(
        ("onnx",),
        "ONNX has no operator for it",
        "Write it with other torch operations, or export to .pt2.",
        _names(
            "Tensor.frexp Tensor.gcd Tensor.gcd_ Tensor.hash_tensor Tensor.histogram Tensor.index_reduce "
            "Tensor.index_reduce_ Tensor.lcm Tensor.lcm_ Tensor.mode Tensor.nextafter Tensor.nextafter_ "
            "torch.frexp torch.gcd torch.grid_sampler_3d torch.hash_tensor torch.histogram torch.histogramdd "
            "torch.index_reduce torch.lcm torch.mode torch.nextafter "
            ""
            "torch.nn.functional.linear_cross_entropy"
        ),
    ),
)
