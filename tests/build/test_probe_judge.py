"""The probe on two sessions in one process: frozen data is found, harmless twins pass."""

import bisect
import warnings

import cv2
import numba
import numpy as np
import pytest
import scipy.signal
import torch

from leapp import _compile, errors
from leapp._prepare import CompileOptions
from leapp._spec import ExportFormat
from leapp.build import probe
from leapp.bundle.read import load
from leapp.manifest.model import Range
from leapp.trace.session import Session, SessionOptions

XS = [-1.0, 0.0, 1.0]


def options_for(session):
    return CompileOptions(formats_for=lambda node: (ExportFormat.TORCHSCRIPT,), strict=False)


@pytest.fixture
def probed(tmp_path):
    """Run a node function twice, as a build would, and give the report."""

    def run(body, make=lambda: torch.randn(4), ticks=1, allow=None, not_varied=(), hints=None, seeds=(0, 1)):
        def entry(session):
            for _ in range(ticks):
                x = make()
                session.input_tensors("n", {"x": x})
                y = body(session, x)
                session.output_tensors("n", {"y": y})
            session.stop()
            return session

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.LeappWarning)
            torch.manual_seed(seeds[0])
            first = entry(
                Session(SessionOptions("p", tmp_path / "p", allow=allow or {}, root=tmp_path, watch_modules=True))
            )
            result = _compile.compile_session(first, options_for(first))
            probe.write_record(tmp_path / "record", result)
            torch.manual_seed(seeds[1])
            variation = probe.SecondSession(
                load(result.bundle), tmp_path / "record", hints=hints or {}, root=tmp_path, seed=seeds[1]
            )
            second = entry(
                Session(SessionOptions("p", tmp_path / "q", allow=allow or {}, root=tmp_path, variation=variation))
            )
        return probe.judge(second, variation, allowed_not_varied=not_varied)

    return run


CACHE = {}


def cached_scale(session, x):
    if "scale" not in CACHE:
        CACHE["scale"] = x.abs().mean().detach().numpy().item() + 1.0
    return x * CACHE["scale"]


def limit(session, x):
    bound = float(x.abs().mean())
    return x.clamp(-bound, bound)


def filtered(session, x):
    b, a = scipy.signal.butter(2, 0.3)
    return x + torch.from_numpy(scipy.signal.lfilter(b, a, x.detach().numpy()).astype(np.float32))


def resized(session, x):
    image = cv2.resize(x.detach().numpy().reshape(2, 2), (4, 4))
    return x.sum() + torch.from_numpy(image)


@numba.njit
def doubled(values):
    return values * 2


def compiled(session, x):
    return x + torch.from_numpy(doubled(x.detach().numpy()))


def through_a_global(session, x):
    CACHE["last"] = float(x.max())
    return x * CACHE["last"]


def lookup(session, x):
    return x * bisect.bisect(XS, x[0].item() * 3)


def exploration(session, x):
    return x + torch.randn(x.shape)


@pytest.mark.parametrize(
    ("body", "what", "escape"),
    [
        (limit, "argument", "float()"),
        (filtered, "constant", "scipy.signal.lfilter"),
        (resized, "constant", "cv2.resize"),
        (compiled, "constant", "doubled"),
        (through_a_global, "argument", "float()"),
        (exploration, "constant", "randn"),
    ],
)
def test_frozen_data_is_found_and_named(probed, body, what, escape):
    report = probed(body)
    assert not report.ok
    (moved, *_) = report.moved
    assert what in moved.what
    assert escape in moved.escape
    assert moved.largest > 0
    assert moved.file.endswith("test_probe_judge.py")
    code = body.__code__
    assert code.co_firstlineno < moved.line <= code.co_firstlineno + 4
    assert f"{moved.line}" in moved.text()


def test_a_lookup_by_a_read_value(probed):
    values = iter([torch.tensor([-2.0, 1.0]), torch.tensor([2.0, 1.0])])
    report = probed(lookup, make=lambda: next(values))
    assert "argument 0 -> 3" in report.moved[0].what
    assert ".item()" in report.moved[0].escape


def test_a_cache_filled_on_the_first_call(probed):
    def fresh(session, x):
        CACHE.clear()  # each session is a process of its own
        return cached_scale(session, x)

    assert not probed(fresh).ok


def test_a_value_derived_before_the_inputs(probed):
    scales = []

    def make():
        x = torch.randn(4)
        scales.append(float(x.max()))
        return x

    report = probed(lambda session, x: x / scales[-1], make=make)
    assert not report.ok
    assert report.moved[0].escape == ""
    assert "derived before the node" in report.moved[0].text()


def test_a_structure_that_follows_the_data(probed):
    counts = iter([2, 3])

    def body(session, x):
        for _ in range(next(counts)):
            x = x + 1
        return x

    report = probed(body)
    assert "2 operations became 3" in report.moved[0].what


@pytest.mark.parametrize(
    "body",
    [
        lambda session, x: (f"{x.mean():.2f}", x * 2)[1],
        lambda session, x: torch.distributions.Normal(x, x.exp()).log_prob(x),
        lambda session, x: x.clamp(-x.abs().mean(), x.abs().mean()),
        lambda session, x: x * session.constant(0.5 + float(torch.rand(()))),
        lambda session, x: torch.where(x > 0, x, -x),
        lambda session, x: x + x[x > 0].sum(),
        lambda session, x: torch.nn.functional.conv1d(x[None], torch.tensor([[[0.5, 0.25]]]))[0],
        lambda session, x: torch.nn.functional.interpolate(x.reshape(1, 1, 2, 2), (4, 4), mode="bilinear"),
    ],
    ids=["print", "distribution", "tensor-limit", "annotated-constant", "where", "mask", "filter", "resize"],
)
def test_harmless_twins_pass(probed, body):
    report = probed(body)
    assert report.ok, report.lines()
    assert report.replays[0].formats[0].ports[0].samples == 1


def test_unseeded_weights_are_noted_and_harmless(probed):
    layers = iter([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
    report = probed(lambda session, x: next(layers)(x))
    assert report.ok, report.lines()
    assert report.unseeded == ("torch.nn.modules.linear.Linear",)


def test_weights_of_a_module_that_is_not_called_are_told_as_weights(probed):
    layers = iter([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
    nets = []

    def body(session, x):
        nets.append(next(layers))
        return torch.nn.functional.linear(x, nets[-1].weight) + x @ nets[-1].weight.T

    report = probed(body)
    assert not report.ok
    text = report.moved[0].text()
    assert "is a parameter that each run begins with other values" in text
    assert "seed it in the entry (torch.manual_seed) or load a checkpoint" in text
    assert "moved with the data" not in text


def test_parameters_that_were_fed_by_the_data_are_told_as_frozen(probed):
    def body(session, x):
        return torch.nn.functional.linear(x, torch.nn.Parameter(torch.eye(4) * float(x.max())))

    text = probed(body).moved[0].text()
    assert "moved with the data" in text
    assert "fed by float()" in text


def test_plain_tensors_get_no_such_treatment(probed):
    weights = iter([torch.ones(4), torch.full((4,), 2.0)])
    report = probed(lambda session, x: x * next(weights))
    assert "the constant '_tensor_constant0'" in report.moved[0].what
    assert report.moved[0].largest == 1.0


def test_inputs_that_stay_are_perturbed_around_their_spread(probed):
    report = probed(lambda session, x: x * 2, make=lambda: torch.full((4,), 3.0))
    assert report.ok
    assert report.perturbed == ("n/x",)


def test_inputs_that_cannot_be_perturbed_are_an_error_unless_allowed(probed):
    def make():
        return torch.arange(4)

    report = probed(lambda session, x: x * 2, make=make)
    assert report.not_varied == ("n/x",)
    assert not report.ok
    assert 'ports."n/x"' in report.lines()[0]
    assert probed(lambda session, x: x * 2, make=make, not_varied=["n/x"]).ok


@pytest.mark.parametrize(
    ("hint", "make", "holds"),
    [
        (probe.Range(0, 3), lambda: torch.arange(4), lambda x: (x >= 0).all() and (x <= 3).all()),
        (probe.Choices((5, 7)), lambda: torch.arange(4), lambda x: set(x.tolist()) <= {5, 7}),
        (probe.Structure("one-hot"), lambda: torch.eye(4)[0].clone(), lambda x: sorted(x.tolist()) == [0, 0, 0, 1]),
        (probe.Structure("unit-quaternion"), lambda: torch.eye(4)[0].clone(), lambda x: abs(x.norm() - 1) < 1e-6),
        (probe.Structure("permute"), lambda: torch.arange(40.0), lambda x: sorted(x.tolist()) == list(range(40))),
    ],
)
def test_hints(probed, hint, make, holds):
    seen = []

    def body(session, x):
        seen.append(x.detach().clone())
        return x * 2

    report = probed(body, make=make, hints={"n/x": hint}, seeds=(0, 3))
    assert holds(probe.plain(seen[1]))
    assert report.perturbed == ("n/x",)


def test_many_ticks_are_all_replayed(probed):
    report = probed(lambda session, x: torch.tanh(x), ticks=4)
    assert report.ok
    assert report.replays[0].formats[0].ports[0].samples == 4


def branching(session, x):
    return x * 2 if x.sum() > 0 else -x


def untraced(session, x):
    return x + torch.from_numpy(np.unique(x.numpy()))


@pytest.mark.parametrize(
    ("body", "allow"),
    [
        (branching, {"branches": [f"{__name__}:branching"]}),
        (untraced, {"untraced": [f"{__name__}:untraced"]}),
        (limit, {"escapes": [f"{__name__}:limit"]}),
        (exploration, {"random": [f"{__name__}:exploration"]}),
    ],
)
def test_every_key_of_allow_excuses_what_it_names(probed, body, allow):
    values = iter([torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([-1.0, -2.0, -3.0, -5.0])])
    report = probed(body, make=lambda: next(values), allow=allow)
    assert report.ok, report.lines()
    assert report.moved
    assert all(moved.allowed for moved in report.moved)


def test_an_array_that_is_meant_to_be_fixed_is_pinned(probed):
    def meant(session, x):
        b, a = scipy.signal.butter(2, 0.3)
        smooth = scipy.signal.lfilter(b, a, x.detach().numpy()).astype(np.float32)
        return x + torch.from_numpy(session.constant(smooth)) * session.constant(smooth.max())

    report = probed(meant)
    assert report.ok, report.lines()


def with_state(read):
    """A node whose state starts with ones in every run; ``read`` makes a number of it."""

    def body(session, x):
        h = torch.ones(4)
        session.state_tensors("n", {"h": h})
        session.update_state("n", {"h": h * 0.5 + x})
        return x * read(h)

    return body


def test_starts_of_state_are_no_data_of_the_run(probed):
    report = probed(with_state(lambda h: h.sum()))
    assert report.ok, report.lines()
    assert report.perturbed == ()
    (shown,) = report.starts
    assert (shown.port, shown.seen.same, shown.seen.zero, shown.declared) == ("n/h", True, False, False)


def test_a_hint_moves_a_state_after_its_start_was_seen(probed):
    """What is frozen from it shows then."""
    report = probed(with_state(lambda h: float(h.sum())), hints={"n/h": Range(-1, 1)})
    assert "fed by float()" in report.lines()[0]
    assert report.perturbed == ("n/h",)
    (shown,) = report.starts
    assert shown.seen.same


class Remembering(torch.nn.Module):
    """Weights that nobody seeds, a state that is reassigned and one that is written; a gain that is only read."""

    def __init__(self, gain):
        super().__init__()
        self.cell = torch.nn.Linear(8, 4)
        self.register_buffer("hidden", torch.zeros(4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("gain", gain)

    def forward(self, x):
        self.count += 1
        self.hidden = torch.tanh(self.cell(torch.cat([x, self.hidden])))
        return self.hidden * self.gain + self.count


def remembering(gain=lambda: torch.rand(4), frozen=lambda model: 0.0):
    models = []

    def body(session, x):
        if len(session.nodes["n"].recordings) == 0:
            models.append(Remembering(gain()))
        session.module("n", models[-1], None)
        return models[-1](x) + frozen(models[-1])

    return body


def test_buffers_of_modules_that_are_state(probed):
    report = probed(remembering(), ticks=3)
    assert report.ok, report.lines()
    assert len(report.unseeded) == 1
    assert {shown.port: (shown.seen.same, shown.seen.zero) for shown in report.starts} == {
        "n/hidden": (True, True), "n/count": (True, True),
    }  # fmt: skip


def test_what_is_frozen_from_a_state_is_found(probed):
    report = probed(remembering(frozen=lambda model: float(model.hidden.detach().sum())), ticks=2)
    assert not report.ok
    assert "fed by float()" in report.lines()[0]
