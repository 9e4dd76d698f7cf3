"""Profiles: all that come with Windlass, the user's own, and what is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests import ROOT
from windlass.core.errors import InputError
from windlass.site.cluster import Cluster, GpuType, Partition
from windlass.site.merge import known_memory_mb, make_cluster
from windlass.site.profiles import (
    GPU_KEYS,
    KEYS,
    PARTITION_KEYS,
    find_line,
    list_profiles,
    parse_profile,
    read_profile,
    render_key_tables,
)

EXPECTED = [
    "beluga",
    "cedar",
    "fir",
    "generic",
    "graham",
    "ilcc",
    "mlp",
    "narval",
    "nibi",
    "plai",
    "rorqual",
    "rwth",
]


@pytest.fixture(autouse=True)
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "windlass" / "sites"
    folder.mkdir(parents=True)
    return folder


def test_all_profiles_are_there() -> None:
    assert list(list_profiles()) == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_fact_of_a_profile_says_where_it_came_from(name: str) -> None:
    profile = read_profile(name)
    cluster = make_cluster(profile)
    assert cluster.name == cluster.profile == name and not cluster.live
    assert set(cluster.sources) >= {field.name for field in fields(Cluster)} - {
        "sources",
        "defaults_file",
        "live",
        "asked_at",
        "waiting",
    }
    for field in profile.facts:
        assert cluster.sources[field] == f"profile {name} ({profile.as_of})"
    for word in cluster.defaults:
        assert cluster.sources[f"defaults.{word}"].startswith(f"profile {name}")
    assert profile.about and (profile.as_of or name == "generic")


@pytest.mark.parametrize("name", ["cedar", "graham", "beluga", "narval", "fir", "nibi", "rorqual"])
def test_the_alliance(name: str) -> None:
    cluster = make_cluster(read_profile(name))
    assert (
        not cluster.name_partition
        and cluster.account_rule == "required"
        and cluster.gpu_form == "gpus-per-node"
    )
    assert cluster.gpus and all(gpu.memory_mb for gpu in cluster.gpus)


def test_facts_of_single_sites() -> None:
    cedar, plai, rwth = (make_cluster(read_profile(name)) for name in ("cedar", "plai", "rwth"))
    assert cedar.gpu("p100") == GpuType("p100", 0, 4, 12 * 1024, 6, 32000, 1.0)
    assert (
        cedar.defaults == {"gpu_type": "v100l"}
        and cedar.max_time_s == 28 * 86400
        and not cedar.submit_from_home
    )
    assert plai.account_rule == "never" and not plai.typed_gpus and plai.throttle == 10
    assert (
        plai.local_scratch == "/scratch-ssd/$USER"
        and plai.scratch == "/ubc/cs/research/plai-scratch/$USER"
    )
    assert plai.gpu("") == GpuType("", share_cpus=2, share_memory_mb=10 * 1024)
    assert plai.partition(None) == Partition("plai", is_default=True)
    assert (
        rwth.shebang == "/usr/bin/zsh"
        and rwth.memory_form == "mem-per-cpu"
        and rwth.gpu("volta") is not None
    )
    for name in ("ilcc", "mlp"):
        cluster = make_cluster(read_profile(name))
        assert cluster.local_scratch == "/disk/scratch/$USER" and cluster.account_rule == "never"


def test_a_default_of_a_profile_exists_in_it() -> None:
    for name in EXPECTED:
        cluster = make_cluster(read_profile(name))
        if "partition" in cluster.defaults:
            assert cluster.partition(cluster.defaults["partition"])
        if "gpu_type" in cluster.defaults:
            assert cluster.gpu(cluster.defaults["gpu_type"])


def test_keys_name_fields_that_exist() -> None:
    for keys, kind in ((KEYS, Cluster), (GPU_KEYS, GpuType), (PARTITION_KEYS, Partition)):
        assert {key.field for key in keys} - {""} <= {field.name for field in fields(kind)}


def test_the_page_about_sites_has_every_key() -> None:
    assert render_key_tables() in (ROOT / "docs/sites.md").read_text()


def test_the_example_of_the_page_is_valid() -> None:
    text = (ROOT / "docs/sites.md").read_text()
    example = text.split("```toml\n")[1].split("```")[0]
    profile = parse_profile(example, "mysite.toml")
    assert profile.clusters and profile.gpus and profile.defaults


def test_everything_wrong_is_said_at_once_with_its_line() -> None:
    text = (
        'throttle = "ten"\n'
        "trottle = 3\n"
        'account_rule = "sometimes"\n'
        "max_time = 7\n"
        "\n"
        "[gpu.p100]\n"
        'memory = "lots"\n'
        "cores = 6\n"
        '[gpu."a100_1g.5gb"]\n'
        "share_cpus = 0\n"
        "[defaults]\n"
        "gputype = 1\n"
    )
    with pytest.raises(InputError) as caught:
        parse_profile(text, "/x/mysite.toml")
    assert sorted(
        (problem.line, problem.message.split(":")[0]) for problem in caught.value.problems
    ) == [
        (1, "throttle"),
        (2, "unknown key 'trottle'"),
        (3, "account_rule"),
        (4, "max_time"),
        (7, "gpu.p100.memory"),
        (8, "unknown key 'gpu.p100.cores'"),
        (10, "gpu.a100_1g.5gb.share_cpus"),
        (12, "unknown key 'defaults.gputype'"),
    ]
    assert {problem.file for problem in caught.value.problems} == {"/x/mysite.toml"}
    assert "throttle" in next(
        problem.hint for problem in caught.value.problems if problem.line == 2
    )


def test_what_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InputError) as caught:
        parse_profile("throttle = 3\nshebang = \n", "x.toml")
    (problem,) = caught.value.problems
    assert problem.line == 2 and problem.file == "x.toml"


@pytest.mark.parametrize(
    "text", ["gpu = 3", "[gpu]\np100 = 4", "defaults = []", "throttle = true", "notes = 'a'"]
)
def test_wrong_shapes_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_profile(text, "x.toml")


def test_lines_of_keys_in_other_spellings() -> None:
    text = "# gpu\ngpu.p100.memory = '12G'\n[ gpu . 'v100l' ] # x\n  share_cpus=8\n"
    assert find_line(text, ("gpu", "p100", "memory")) == 2
    assert find_line(text, ("gpu", "v100l")) == 3
    assert find_line(text, ("gpu", "v100l", "share_cpus")) == 4
    assert find_line(text, ("gpu", "none")) == 0


def test_the_users_own_file_goes_over_ours(sites: Path) -> None:
    own = sites / "cedar.toml"
    own.write_text(
        'throttle = 3\nmin_job = "00:10:00"\n[gpu.p100]\nshare_cpus = 4\n[defaults]\naccount = "def-me"\n'
    )
    cluster = make_cluster(read_profile("cedar"))
    assert (
        cluster.throttle == 3
        and cluster.min_job_s == 600
        and cluster.sources["throttle"] == f"site file {own}"
    )
    assert (
        cluster.account_rule == "required"
        and cluster.sources["account_rule"] == "profile cedar (2025)"
    )
    p100 = cluster.gpu("p100")
    assert p100 is not None and p100.share_cpus == 4 and p100.memory_mb == 12 * 1024
    assert cluster.defaults == {"account": "def-me", "gpu_type": "v100l"}


def test_a_site_of_ones_own(sites: Path) -> None:
    (sites / "attic.toml").write_text('clusters = ["attic"]\nshebang = "/bin/sh"\n')
    assert "attic" in list_profiles() and make_cluster(read_profile("attic")).shebang == "/bin/sh"


@pytest.mark.parametrize("name", ["nosuch", "../cedar", "", "a/b"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match=r"known are: beluga, cedar"):
        read_profile(name)


@pytest.mark.parametrize(
    "name,gigabytes",
    [
        ("p100", 12),
        ("p100l", 16),
        ("v100", 16),
        ("v100l", 32),
        ("t4", 16),
        ("a100", 40),
        ("nvidia_a100_80gb_pcie", 80),
        ("NVIDIA_A100-SXM4-40GB", 40),
        ("a100_3g.20gb", 20),
        ("nvidia_h100_80gb_hbm3_1g.10gb", 10),
        ("tesla_v100-sxm2-32gb", 32),
        ("h100", 80),
        ("h200", 141),
        ("l4", 24),
        ("l40s", 48),
        ("rtx_a6000", 48),
        ("nvidia_geforce_rtx_2080_ti", 11),
        ("2080ti", 11),
        ("nvidia_rtx_6000_ada_generation", 48),
    ],
)
def test_memory_of_well_known_gpus(name: str, gigabytes: int) -> None:
    assert known_memory_mb(name) == gigabytes * 1024


def test_memory_of_what_nobody_knows() -> None:
    assert known_memory_mb("volta") is None and known_memory_mb("") is None
