"""Rotations, cameras, warps and filters: kornia and roma."""

from __future__ import annotations

from functools import partial
from typing import Any

import kornia
import roma
import torch
from kornia.geometry import camera, conversions, epipolar, linalg, transform
from torch import nn, rand, randn
from zoo_item import Item

ITEMS: list[Item] = []


def unit(*shape: int) -> torch.Tensor:
    """Quaternions."""
    return nn.functional.normalize(randn(*shape, 4), dim=-1)


def rotation(*shape: int) -> torch.Tensor:
    """Rotation matrices."""
    return roma.unitquat_to_rotmat(unit(*shape))


def homography(count: int = 1) -> torch.Tensor:
    """Matrices that move a picture a little."""
    return torch.eye(3) + 0.05 * randn(count, 3, 3)


def intrinsics(count: int = 1) -> torch.Tensor:
    """Pinhole cameras."""
    matrix = torch.eye(3).repeat(count, 1, 1)
    matrix[:, 0, 0], matrix[:, 1, 1] = 5 + rand(count), 6 + rand(count)
    matrix[:, 0, 2], matrix[:, 1, 2] = 3 + rand(count), 4 + rand(count)
    return matrix


def pose(count: int = 1) -> torch.Tensor:
    """Rigid motions."""
    matrix = torch.eye(4).repeat(count, 1, 1)
    matrix[:, :3, :3], matrix[:, :3, 3] = rotation(count), randn(count, 3)
    return matrix


def picture(channels: int = 3) -> torch.Tensor:
    """An image in [0, 1]."""
    return rand(1, channels, 9, 10)


def item(package: str, name: str, code: Any, inputs: Any, label: str = "", branches: tuple[str, ...] = ()) -> None:
    """A function, or a module when it is one."""
    ITEMS.append(Item(f"{package}.{name}{label}", code if isinstance(code, type) else lambda: code, inputs, branches))


# --- roma ------------------------------------------------------------------------------------------------------------

for name in ("rotvec_to_rotmat rotvec_to_unitquat rotvec_inverse").split():
    item("roma", name, getattr(roma, name), lambda: (randn(4, 3),))
for (
    name
) in "unitquat_to_rotmat unitquat_to_rotvec quat_conjugation quat_inverse quat_xyzw_to_wxyz quat_wxyz_to_xyzw".split():
    item("roma", name, getattr(roma, name), lambda: (unit(4),))
for name in "rotmat_to_rotvec rotmat_to_unitquat rotmat_inverse".split():
    item("roma", name, getattr(roma, name), lambda: (rotation(4),))
for name in "special_procrustes special_gramschmidt".split():
    item("roma", name, getattr(roma, name), lambda: (randn(4, 3, 3),))
item("roma", "special_gramschmidt", roma.special_gramschmidt, lambda: (randn(4, 3, 2),), "/six-dims")
# An eigenvector has no sign: which one comes out follows from the last bit.
item(
    "roma",
    "symmatrixvec_to_unitquat",
    lambda a: roma.unitquat_to_rotmat(roma.symmatrixvec_to_unitquat(a)),
    lambda: (randn(4, 10),),
)
item("roma", "quat_normalize", roma.quat_normalize, lambda: (randn(4, 4),))
item("roma", "quat_product", roma.quat_product, lambda: (unit(4), unit(4)))
item("roma", "quat_action", roma.quat_action, lambda: (unit(4), randn(4, 3)))
item(
    "roma",
    "quat_composition",
    lambda a, b, c: roma.quat_composition((a, b, c), normalize=True),
    lambda: (unit(2), unit(2), unit(2)),
)
for name in "rotvec_composition".split():
    item("roma", name, lambda a, b: roma.rotvec_composition((a, b)), lambda: (randn(2, 3), randn(2, 3)))
item("roma", "rotmat_geodesic_distance", roma.rotmat_geodesic_distance, lambda: (rotation(3), rotation(3)))
item("roma", "rotmat_cosine_angle", roma.rotmat_cosine_angle, lambda: (rotation(3),))
item("roma", "unitquat_geodesic_distance", roma.unitquat_geodesic_distance, lambda: (unit(3), unit(3)))
item("roma", "rotvec_geodesic_distance", roma.rotvec_geodesic_distance, lambda: (randn(3, 3), randn(3, 3)))
item("roma", "unitquat_slerp", roma.unitquat_slerp, lambda: (unit(3), unit(3), rand(5)))
item("roma", "unitquat_slerp_fast", roma.unitquat_slerp_fast, lambda: (unit(3), unit(3), rand(5)))
item("roma", "rotvec_slerp", roma.rotvec_slerp, lambda: (randn(3, 3), randn(3, 3), rand(5)))
item("roma", "rotmat_slerp", roma.rotmat_slerp, lambda: (rotation(3), rotation(3), rand(5)))
item(
    "roma",
    "euler_to_rotmat",
    lambda *angles: roma.euler_to_rotmat("xyz", list(angles)),
    lambda: (randn(4), randn(4), randn(4)),
)
item(
    "roma",
    "euler_to_unitquat",
    lambda *angles: roma.euler_to_unitquat("ZYX", list(angles), degrees=True),
    lambda: (randn(4) * 40, randn(4) * 40, randn(4) * 40),
)
item("roma", "rotmat_to_euler", lambda r: roma.rotmat_to_euler("xyz", r, as_tuple=False), lambda: (rotation(4),))
item("roma", "unitquat_to_euler", lambda q: roma.unitquat_to_euler("ZXZ", q), lambda: (unit(4),))
item("roma", "rigid_points_registration", roma.rigid_points_registration, lambda: (randn(2, 6, 3), randn(2, 6, 3)))
item("roma", "rigid_vectors_registration", roma.rigid_vectors_registration, lambda: (randn(6, 3), randn(6, 3)))
item(
    "roma",
    "Rigid",
    lambda r, t, x: (roma.Rigid(r, t) @ roma.Rigid(r, t).inverse() @ roma.Rigid(r, t))[None].apply(x),
    lambda: (rotation(), randn(3), randn(4, 3)),
)
item(
    "roma",
    "RigidUnitQuat",
    lambda q, t, x: roma.RigidUnitQuat(q, t).inverse().to_homogeneous() @ x,
    lambda: (unit(2), randn(2, 3), randn(4, 1)),
)

# --- kornia: conversions ---------------------------------------------------------------------------------------------

for name in "axis_angle_to_rotation_matrix axis_angle_to_quaternion quaternion_log_to_exp vector_to_skew_symmetric_matrix".split():
    item("kornia", name, getattr(conversions, name), lambda: (randn(4, 3),))
for name in "quaternion_to_axis_angle quaternion_to_rotation_matrix quaternion_exp_to_log normalize_quaternion".split():
    item("kornia", name, getattr(conversions, name), lambda: (unit(4),))
for name in "rotation_matrix_to_quaternion rotation_matrix_to_axis_angle".split():
    item("kornia", name, getattr(conversions, name), lambda: (rotation(4),))
item("kornia", "euler_from_quaternion", lambda q: conversions.euler_from_quaternion(*q.unbind(-1)), lambda: (unit(4),))
item("kornia", "quaternion_from_euler", conversions.quaternion_from_euler, lambda: (randn(4), randn(4), randn(4)))
item("kornia", "cart2pol", conversions.cart2pol, lambda: (randn(4), randn(4)))
item("kornia", "convert_points_to_homogeneous", conversions.convert_points_to_homogeneous, lambda: (randn(4, 2),))
item("kornia", "convert_points_from_homogeneous", conversions.convert_points_from_homogeneous, lambda: (randn(4, 3),))
item(
    "kornia",
    "convert_affinematrix_to_homography",
    conversions.convert_affinematrix_to_homography,
    lambda: (randn(2, 2, 3),),
)
item(
    "kornia",
    "normalize_pixel_coordinates",
    partial(conversions.normalize_pixel_coordinates, height=5, width=6),
    lambda: (rand(4, 2) * 5,),
)
item(
    "kornia",
    "denormalize_pixel_coordinates",
    partial(conversions.denormalize_pixel_coordinates, height=5, width=6),
    lambda: (rand(4, 2),),
)
item(
    "kornia",
    "worldtocam_to_camtoworld_Rt",
    conversions.worldtocam_to_camtoworld_Rt,
    lambda: (rotation(2), randn(2, 3, 1)),
)
item("kornia", "transform_points", linalg.transform_points, lambda: (pose(2), randn(2, 5, 3)))
item("kornia", "compose_transformations", linalg.compose_transformations, lambda: (pose(2), pose(2)))
item("kornia", "inverse_transformation", linalg.inverse_transformation, lambda: (pose(2),))
item("kornia", "relative_transformation", linalg.relative_transformation, lambda: (pose(2), pose(2)))
item(
    "kornia",
    "So3",
    lambda v, x: (kornia.geometry.So3.exp(v) * kornia.geometry.So3.exp(v)).inverse().matrix() @ x,
    lambda: (randn(2, 3), randn(3, 1)),
)
item("kornia", "Se3", lambda v: kornia.geometry.Se3.exp(v).matrix(), lambda: (randn(2, 6),))
item("kornia", "So2", lambda t: kornia.geometry.So2.exp(t).matrix(), lambda: (randn(3),))
item(
    "kornia",
    "Quaternion",
    lambda q, p: (kornia.geometry.Quaternion(q) * kornia.geometry.Quaternion(p)).normalize().inv().matrix(),
    lambda: (unit(2), unit(2)),
)

# --- kornia: cameras -------------------------------------------------------------------------------------------------

item(
    "kornia", "project_points", camera.project_points, lambda: (randn(4, 3) + torch.tensor([0, 0, 4.0]), intrinsics(4))
)
item("kornia", "unproject_points", camera.unproject_points, lambda: (randn(4, 2), rand(4, 1) + 1, intrinsics(4)))
item(
    "kornia",
    "PinholeCamera",
    lambda k, e, x: camera.PinholeCamera(_four(k), e, torch.tensor([5.0]), torch.tensor([6.0])).project(x),
    lambda: (intrinsics(), pose(), randn(1, 4, 3)),
)
item(
    "kornia",
    "distort_points",
    kornia.geometry.calibration.distort_points,
    lambda: (rand(2, 4, 2) * 5, intrinsics(2), 0.01 * randn(2, 5)),
)
item(
    "kornia",
    "undistort_points",
    kornia.geometry.calibration.undistort_points,
    lambda: (rand(2, 4, 2) * 5, intrinsics(2), 0.01 * randn(2, 5)),
)
item(
    "kornia",
    "undistort_image",
    kornia.geometry.calibration.undistort_image,
    lambda: (picture(), intrinsics(), 0.01 * randn(1, 5)),
)
item("kornia", "depth_to_3d", kornia.geometry.depth.depth_to_3d_v2, lambda: (rand(1, 4, 5) + 1, intrinsics()))
item("kornia", "depth_to_normals", kornia.geometry.depth.depth_to_normals, lambda: (rand(1, 1, 4, 5) + 1, intrinsics()))
item(
    "kornia",
    "triangulate_points",
    epipolar.triangulate_points,
    lambda: (randn(1, 3, 4), randn(1, 3, 4), randn(1, 4, 2), randn(1, 4, 2)),
)
item(
    "kornia",
    "essential_from_Rt",
    epipolar.essential_from_Rt,
    lambda: (rotation(1), randn(1, 3, 1), rotation(1), randn(1, 3, 1)),
)
item(
    "kornia",
    "fundamental_from_essential",
    epipolar.fundamental_from_essential,
    lambda: (randn(1, 3, 3), intrinsics(), intrinsics()),
)
item(
    "kornia",
    "sampson_epipolar_distance",
    epipolar.sampson_epipolar_distance,
    lambda: (randn(1, 5, 2), randn(1, 5, 2), randn(1, 3, 3)),
)
item("kornia", "find_homography_dlt", kornia.geometry.homography.find_homography_dlt, lambda: _pairs())
item("kornia", "solve_quadratic", kornia.geometry.solvers.solve_quadratic, lambda: (randn(5, 3),))


def _four(matrix: torch.Tensor) -> torch.Tensor:
    """A camera matrix as kornia's camera takes it."""
    return nn.functional.pad(matrix, (0, 1, 0, 1)) + torch.diag(torch.tensor([0.0, 0.0, 0.0, 1.0]))


def _pairs() -> tuple[torch.Tensor, ...]:
    """Points, and where a homography takes them."""
    points = rand(1, 6, 2) * 5
    return points, linalg.transform_points(homography(), points)


# --- kornia: warps ---------------------------------------------------------------------------------------------------

item(
    "kornia", "warp_affine", lambda x, m: transform.warp_affine(x, m, (7, 8)), lambda: (picture(), homography()[:, :2])
)
item(
    "kornia",
    "warp_perspective",
    lambda x, m: transform.warp_perspective(x, m, (7, 8)),
    lambda: (picture(), homography()),
)
item(
    "kornia", "homography_warp", lambda x, m: transform.homography_warp(x, m, (7, 8)), lambda: (picture(), homography())
)
item(
    "kornia",
    "warp_frame_depth",
    kornia.geometry.depth.warp_frame_depth,
    lambda: (picture(), rand(1, 1, 9, 10) + 1, pose(), intrinsics()),
)
item("kornia", "get_perspective_transform", transform.get_perspective_transform, lambda: (_corners(), _corners()))
item(
    "kornia",
    "get_rotation_matrix2d",
    transform.get_rotation_matrix2d,
    lambda: (rand(2, 2) * 4, randn(2) * 40, rand(2, 2) + 0.5),
)
item("kornia", "rotate", transform.rotate, lambda: (picture(), randn(1) * 40))
item("kornia", "translate", transform.translate, lambda: (picture(), randn(1, 2)))
item("kornia", "scale", transform.scale, lambda: (picture(), rand(1, 2) + 0.5))
item("kornia", "shear", transform.shear, lambda: (picture(), randn(1, 2) * 0.3))
item("kornia", "crop_and_resize", lambda x, b: transform.crop_and_resize(x, b, (4, 5)), lambda: (picture(), _corners()))
item("kornia", "resize", lambda x: transform.resize(x, (5, 6), antialias=True), lambda: (picture(),))
item("kornia", "remap", transform.remap, lambda: (picture(), rand(1, 5, 6) * 8, rand(1, 5, 6) * 8))
item("kornia", "pyrdown", transform.pyrdown, lambda: (rand(1, 2, 8, 8),))
item("kornia", "pyrup", transform.pyrup, lambda: (rand(1, 2, 8, 8),))
item("kornia", "get_tps_transform", transform.get_tps_transform, lambda: (rand(1, 5, 2), rand(1, 5, 2)))
item("kornia", "spatial_soft_argmax2d", kornia.geometry.subpix.spatial_soft_argmax2d, lambda: (randn(1, 2, 5, 6),))
item("kornia", "conv_soft_argmax2d", kornia.geometry.subpix.conv_soft_argmax2d, lambda: (randn(1, 2, 5, 6),))
item("kornia", "elastic_transform2d", transform.elastic_transform2d, lambda: (picture(), rand(1, 2, 9, 10) * 2 - 1))


def _corners() -> torch.Tensor:
    """A quadrilateral near a rectangle."""
    return torch.tensor([[[0.0, 0.0], [6.0, 0.0], [6.0, 5.0], [0.0, 5.0]]]) + rand(1, 4, 2)


# --- kornia: filters and colours ---------------------------------------------------------------------------------------

filters, color, enhance, morphology = kornia.filters, kornia.color, kornia.enhance, kornia.morphology
item(
    "kornia.filters", "gaussian_blur2d", lambda x: filters.gaussian_blur2d(x, (3, 5), (0.8, 1.2)), lambda: (picture(),)
)
item(
    "kornia.filters",
    "gaussian_blur2d",
    lambda x, s: filters.gaussian_blur2d(x, (3, 3), s),
    lambda: (picture(), rand(1, 2) + 0.5),
    "/sigma",
    ("kornia.filters.gaussian:_gaussian_blur2d",),
)
item("kornia.filters", "sobel", filters.sobel, lambda: (picture(),))
item("kornia.filters", "laplacian", lambda x: filters.laplacian(x, 3), lambda: (picture(),))
item("kornia.filters", "median_blur", lambda x: filters.median_blur(x, (3, 3)), lambda: (picture(),))
item(
    "kornia.filters",
    "bilateral_blur",
    lambda x: filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    lambda: (picture(),),
)
item("kornia.filters", "canny", lambda x: filters.canny(x)[0], lambda: (picture(),))
item("kornia.filters", "unsharp_mask", lambda x: filters.unsharp_mask(x, (3, 3), (1.5, 1.5)), lambda: (picture(),))
item("kornia.filters", "spatial_gradient", filters.spatial_gradient, lambda: (picture(),))
for name in "rgb_to_hsv rgb_to_hls rgb_to_lab rgb_to_luv rgb_to_xyz rgb_to_yuv rgb_to_ycbcr rgb_to_grayscale".split():
    item("kornia.color", name, getattr(color, name), lambda: (picture(),))
for name in "hsv_to_rgb hls_to_rgb".split():
    item("kornia.color", name, getattr(color, name), lambda: (picture(),))
item(
    "kornia.color",
    "lab_to_rgb",
    color.lab_to_rgb,
    lambda: (picture() * torch.tensor([100.0, 60.0, 60.0])[:, None, None],),
)
for name in "dilation erosion opening gradient".split():
    item(
        "kornia.morphology",
        name,
        lambda x, name=name: getattr(morphology, name)(x, torch.ones(3, 3)),
        lambda: (picture(),),
    )
item("kornia.enhance", "adjust_hue", lambda x: enhance.adjust_hue(x, 0.4), lambda: (picture(),))
item("kornia.enhance", "adjust_gamma", lambda x: enhance.adjust_gamma(x, 1.7), lambda: (picture(),))
item("kornia.enhance", "equalize_clahe", lambda x: enhance.equalize_clahe(x, 4.0, (2, 2)), lambda: (rand(1, 1, 8, 8),))
item(
    "kornia.enhance",
    "normalize",
    lambda x: enhance.normalize(x, torch.tensor([0.4]), torch.tensor([0.3])),
    lambda: (picture(),),
)
item(
    "kornia.enhance",
    "histogram",
    lambda x: enhance.histogram(x, torch.linspace(0, 1, 5), torch.tensor(0.1)),
    lambda: (rand(1, 20),),
)
item("kornia.feature", "harris_response", kornia.feature.harris_response, lambda: (picture(1),))
item("kornia.losses", "ssim_loss", lambda a, b: kornia.losses.ssim_loss(a, b, 5), lambda: (picture(), picture()))
item("kornia.losses", "dice_loss", kornia.losses.dice_loss, lambda: (randn(1, 3, 4, 5), torch.randint(3, (1, 4, 5))))
