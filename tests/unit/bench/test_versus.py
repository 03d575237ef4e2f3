"""Speculation against plain decoding under load: turns, ratios, what is predicted, and where it stops paying."""

import pytest

from medusakit.bench.load import LoadConfig
from medusakit.bench.plots import write_plots
from medusakit.bench.versus import joined, predicted, rounds_of, run_versus, stops_paying
from medusakit.cli.load import verdict
from medusakit.errors import RuntimeFailure, UsageError
from medusakit.tree.cost import StepCost
from page_fakes import page_service
from server_fakes import listening, scripted, service_of


def at(concurrency, ratio, high=None):
    return {"concurrency": concurrency, "ratio": ratio, "ratio_ci95": None if high is None else [0.0, high]}


def test_a_server_is_switched_in_turns_and_left_as_it_was(tmp_path):
    with page_service(0.004) as service, listening(service) as url:
        scheduler = service.serving().scheduler
        config = LoadConfig(url, "toy", (1, 3), num_requests=6, max_tokens=30)
        document = run_versus(config, ["one", "two words"], num_rounds=2, num_samples=3)
        assert scheduler.snapshot().speculation
    for found in document["points"]:
        assert (found["requests"], found["errors"], found["rounds"]) == (6, 0, 2)
        assert found["same_answers"] == 6 and found["plain"]["requests"] == 6
        assert found["tokens_per_step"] > 1.5 and found["plain"]["tokens_per_step"] == 1
        assert found["ratio_ci95"][0] <= found["ratio"] <= found["ratio_ci95"][1]
        told = found["predicted"]
        assert told["tau"] > 1.5 and told["nodes_per_step"] > 1
        assert 0 < told["ratio"] < told["tau"]  # a pass costs the same for any nodes, drafting takes something
    assert document["points"][0]["ratio"] > 1
    assert [sample["prompt"] for sample in document["samples"]] == ["one", "two words", "one"]
    assert all(sample["answers"]["speculation"] == sample["answers"]["plain"] != "" for sample in document["samples"])
    names = {file.name for file in write_plots(document, tmp_path)}
    assert names == {"serve-throughput.svg", "serve-tpot.svg", "serve-ttft.svg", "serve-ratio.svg"}
    assert "plain, p95" in (tmp_path / "serve-tpot.svg").read_text()
    assert "predicted" in (tmp_path / "serve-ratio.svg").read_text()


def test_two_servers_are_compared_and_neither_is_switched():
    first, scheduler = service_of(scripted("abc "))
    second, other = service_of(scripted("abc "))
    other.speculation = False
    with listening(first) as url, listening(second) as against:
        config = LoadConfig(url, "toy", (2,), num_requests=4, max_tokens=12)
        document = run_versus(config, ["one"], against=against)
    assert scheduler.speculation and not other.speculation
    (found,) = document["points"]
    assert found["tokens_per_step"] > 1 and found["plain"]["tokens_per_step"] == 1
    assert len(scheduler.jobs) == len(other.jobs) == 4 + 1  # and a warm-up
    for one in (scheduler, other):
        one.close()


def test_a_server_that_cannot_be_switched_is_said_to_be_so():
    with pytest.raises(UsageError, match="cannot be switched") as raised:
        run_versus(LoadConfig("http://127.0.0.1:9", "toy", (1,)), ["one"])
    assert "--against" in raised.value.hint


def test_a_key_that_may_not_switch_is_refused_by_the_servers_own_words():
    service, scheduler = service_of(scripted("abc "), keys=("plain-key",))
    with (
        listening(service) as url,
        pytest.raises(RuntimeFailure, match="403 Forbidden: this API key may not administrate"),
    ):
        run_versus(LoadConfig(url, "toy", (1,), num_requests=2, api_key="plain-key"), ["one"])
    scheduler.close()


@pytest.mark.parametrize(
    ("points", "wanted", "sentence"),
    [
        ([at(1, 1.3), at(4, 1.1)], None, "pays at every concurrency measured, up to 4"),
        ([at(4, 1.1), at(8, 0.97, 1.01)], (8, 4, False), "between 4 and 8 requests at once (not certain"),
        ([at(8, 0.9, 0.95), at(4, 1.1)], (8, 4, True), "between 4 and 8 requests at once."),
        ([at(1, 0.9, 0.95)], (1, None, True), "does not pay even at 1 at once."),
        ([at(1, 1.2), at(2, 0.9)], (2, 1, False), "between 1 and 2"),
    ],
)
def test_where_it_stops_paying(points, wanted, sentence):
    found = stops_paying(points)
    assert (found and (found["concurrency"], found["pays_at"], found["certain"])) == wanted
    assert sentence in verdict({"stops_paying": found, "points": points})


def test_rounds_are_at_least_two_and_never_smaller_than_the_concurrency():
    sizes = [
        [len(part) for part in rounds_of(["a", "b", "c"], *given)] for given in ((16, 1, 4), (16, 8, 4), (4, 16, 4))
    ]
    assert sizes == [[4] * 4, [8] * 2, [16] * 2]
    assert rounds_of(["a", "b", "c"], 4, 1, 2) == [["a", "b"], ["c", "a"]]


def test_the_prediction_is_tau_times_a_plain_pass_over_this_one():
    spec = {
        "row_tokens": 40,
        "row_steps": 20,
        "draft_tokens": 60,
        "draft_s": 0.1,
        "forward_s": 0.3,
        "other_s": 0.02,
        "steps": 10,
    }
    plain = spec | {"row_tokens": 20, "draft_tokens": 0, "draft_s": 0.0, "other_s": 0.01}
    cost = StepCost.single({1: 0.02, 2: 0.03, 8: 0.05})
    assert predicted(spec, plain, cost) == pytest.approx(
        {
            "ratio": 2 * 30 / (50 + 10 + 2 - 1),
            "tau": 2,
            "rows_per_step": 2,
            "nodes_per_step": 8,
            "step_ms": 42,
            "plain_step_ms": 31,
        }
    )
    assert predicted(spec, {}, cost) is None and predicted(spec, plain | {"steps": 0}, cost) is None
    assert predicted(spec, plain, None) is None


def test_two_files_are_joined_where_they_measured_the_same():
    def document(**speeds):
        points = [{"concurrency": int(at[1:]), "tokens_per_s": speed} for at, speed in speeds.items()]
        return {"bench": "serve", "config": {}, "points": points}

    found = joined(document(c1=30, c2=40, c4=45), document(c1=20, c4=50))
    assert [(one["concurrency"], one["ratio"]) for one in found["points"]] == [(1, 1.5), (4, 0.9)]
    assert found["stops_paying"] == {"concurrency": 4, "pays_at": 1, "certain": False}
    with pytest.raises(UsageError, match="share no concurrency"):
        joined(document(c1=30), document(c2=20))
