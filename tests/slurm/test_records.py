"""Slurm's ways of writing things, each form that some version writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.slurm.records import (
    gpus_in_tres,
    parse_config,
    parse_gres,
    parse_hostlist,
    parse_node_states,
    parse_records,
    parse_slurm_memory_mb,
    parse_slurm_time_s,
    parse_table,
    parse_tres,
    split_names,
)


@pytest.mark.parametrize(
    "text,seconds",
    [
        ("30", 1800),
        ("1:30", 90),
        ("01:00:00", 3600),
        ("1-0", 86400),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("1-02:03:04", 93784),
        ("7-00:00:00", 604800),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("infinite", None),
        ("Unlimited", None),
        ("-1", None),
        ("1-", 86400),
        ("NONE", None),
        ("N/A", None),
        ("", None),
        (None, None),
    ],
)
def test_times(text: str | None, seconds: float | None) -> None:
    assert parse_slurm_time_s(text) == seconds


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-", "1:2-", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_slurm_time_s(text)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_full_time_comes_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    assert parse_slurm_time_s(text) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@pytest.mark.parametrize(
    "text,megabytes",
    [
        ("8000", 8000),
        ("8000M", 8000),
        ("7.5G", 7680),
        ("2048K", 2),
        ("1T", 1048576),
        ("4000Mc", 4000),
        ("16Gn", 16384),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_memory(text: str, megabytes: int | None) -> None:
    assert parse_slurm_memory_mb(text) == megabytes


def test_what_is_no_memory() -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_slurm_memory_mb("12Q")


@pytest.mark.parametrize(
    "text,names",
    [
        ("node1", ["node1"]),
        ("node[1-3,07]", ["node1", "node2", "node3", "node07"]),
        ("gpu[08-11],login1", ["gpu08", "gpu09", "gpu10", "gpu11", "login1"]),
        ("a[1-2]b[0-1]", ["a1b0", "a1b1", "a2b0", "a2b1"]),
        ("r[1-2]-n[1,3]-ib", ["r1-n1-ib", "r1-n3-ib", "r2-n1-ib", "r2-n3-ib"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_hostlists(text: str, names: list[str]) -> None:
    assert list(parse_hostlist(text)) == names


@pytest.mark.parametrize(
    "text,gpus",
    [
        ("gpu:4", {"": 4}),
        ("gpu:16", {"": 16}),
        ("gpu:2080ti:8", {"2080ti": 8}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", {"a100": 4}),
        ("gpu:p100:2(IDX:0-1),gpu:a100:1(IDX:2)", {"p100": 2, "a100": 1}),
        ("gpu:a100:3(IDX:0,2-3)", {"a100": 3}),
        ("gpu:a100:0(IDX:N/A)", {"a100": 0}),
        ("gpu:(null):5(IDX:0-2,6-7)", {"": 5}),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7(S:0,2)", {"nvidia_h100_80gb_hbm3_1g.10gb": 7}),
        ("gpu:a100:no_consume:2", {"a100": 2}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gres:gpu:2", {"": 2}),
        ("gres/gpu:a100:2", {"a100": 2}),
        ("gres/gpu=2", {"": 2}),
        ("shard:32,mps:800,craynetwork:4", {}),
        ("(null)", {}),
        ("N/A", {}),
        (None, {}),
    ],
)
def test_gpus_of_a_node(text: str | None, gpus: dict[str, int]) -> None:
    assert parse_gres(text) == gpus


def test_other_resources_by_name() -> None:
    assert parse_gres("gpu:8,shard:2K", "shard") == {"": 2048}


@pytest.mark.parametrize(
    "text,gpus",
    [
        ("cpu=8,mem=8000M,billing=8,gres/gpu=4,gres/gpu:p100=4", {"p100": 4}),
        ("cpu=2,gres/gpu=3,gres/gpu:a100=1,gres/gpu:p100=2", {"a100": 1, "p100": 2}),
        ("cpu=2,gres/gpu=3", {"": 3}),
        ("cpu=2,gres/gpu=3,gres/gpu:a100=1", {"a100": 1, "": 2}),
        ("cpu=2,gres/gpu:a100=3", {"a100": 3}),
        ("cpu=3,mem=1500M", {}),
        ("", {}),
        ("(null)", {}),
    ],
)
def test_gpus_in_an_allocation(text: str, gpus: dict[str, int]) -> None:
    assert gpus_in_tres(parse_tres(text)) == gpus


@pytest.mark.parametrize(
    "text,states",
    [
        ("IDLE", ["idle"]),
        ("MIXED+DRAIN", ["mixed", "drain"]),
        ("DOWN+NOT_RESPONDING", ["down", "not_responding"]),
        ("DOWN*+DRAIN", ["down", "not_responding", "drain"]),
        ("idle~", ["idle", "powered_down"]),
        ("IDLE+DRAIN+INVALID_REG", ["idle", "drain", "inval"]),
        ("IDLE+MAINTENANCE+RESERVED", ["idle", "maint", "reserved"]),
        ("alloc", ["allocated"]),
        ("", []),
    ],
)
def test_states_of_nodes(text: str, states: list[str]) -> None:
    assert list(parse_node_states(text)) == states


def test_records_keep_free_text_whole() -> None:
    first, second = parse_records(
        "NodeName=a Arch=x86_64 \n   OS=Linux 6 #1 SMP a=b \n   State=IDLE Weight=1\n   Reason=x = y, State=DOWN [me@now]\n"
        "\nNodeName=b\n   State=DOWN\n   \n   Reason=after an empty line\n"
    )
    assert first == {
        "NodeName": "a",
        "Arch": "x86_64",
        "OS": "Linux 6 #1 SMP a=b",
        "State": "IDLE",
        "Weight": "1",
        "Reason": "x = y, State=DOWN [me@now]",
    }
    assert second["State"] == "DOWN" and second["Reason"] == "after an empty line"


def test_a_job_without_spaces_to_hold_on_to() -> None:
    (job,) = parse_records(
        "JobId=7 JobName=my job = good\n   UserId=me(1000) Priority=1\n   WorkDir=/a b/c=d\n"
    )
    assert (
        job["JobName"] == "my job = good"
        and job["WorkDir"] == "/a b/c=d"
        and job["Priority"] == "1"
    )


def test_no_records_in_no_text() -> None:
    assert parse_records("") == [] and parse_records("No nodes in the system\n") == []


def test_the_configuration() -> None:
    text = "Configuration data as of now\nMaxArraySize            = 1001\nPlugins = a=b,c\n\nSlurmctld(primary) at x is UP\n"
    assert parse_config(text) == {"MaxArraySize": "1001", "Plugins": "a=b,c"}


def test_tables_and_names() -> None:
    assert parse_table("a|b||\n\nx|y\n", 4) == [["a", "b", "", ""]]
    assert (
        split_names("ALL") == ()
        and split_names("a, b") == ("a", "b")
        and split_names("(null)") == ()
    )
