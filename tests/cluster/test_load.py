"""Cluster descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cluster.load import load_cluster, parse_cluster
from planner.errors import ClusterError
from planner.resources import data_path

HEAD = "schema: fddps/cluster/v1\n"


@pytest.mark.parametrize("path", sorted((data_path("configs") / "clusters").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_clusters_link_every_pair(path: Path) -> None:
    cluster = load_cluster(path)
    names = [device.name for device in cluster.devices]
    assert len(set(names)) == len(names)
    pairs = [(link.src, link.dst) for link in cluster.links]
    assert sorted(pairs) == sorted((a, b) for a in names for b in names if a != b)


def test_mixed_node_with_pair_links_and_an_uplink() -> None:
    cluster = load_cluster(data_path("configs") / "clusters" / "two-v100-two-t4.yaml")
    assert [d.kind for d in cluster.devices] == ["v100-sxm2-16gb"] * 2 + ["t4"] * 2
    assert cluster.link("cuda:0", "cuda:1").kind == "nvlink2"
    assert cluster.link("cuda:2", "cuda:0").channel == cluster.link("cuda:3", "cuda:1").channel == "node0/switch1/out"
    assert cluster.link("cuda:0", "cuda:3").channel == "node0/switch1/in"
    assert "switch1" not in cluster.link("cuda:2", "cuda:3").channel


def test_lanes_multiply_bandwidth() -> None:
    cluster = load_cluster(data_path("configs") / "clusters" / "four-v100-nvlink.yaml")
    assert cluster.link("cuda:0", "cuda:3").bytes_per_s == 2 * cluster.link("cuda:0", "cuda:1").bytes_per_s
    assert cluster.link("cuda:3", "cuda:0").bytes_per_s == cluster.link("cuda:0", "cuda:3").bytes_per_s


def test_several_nodes_share_their_network_cards() -> None:
    cluster = load_cluster(data_path("configs") / "clusters" / "two-nodes-of-two-v100.yaml")
    assert cluster.nodes() == ("node0", "node1")
    out = cluster.link("node0/cuda:0", "node1/cuda:1")
    assert out.kind == "ethernet-25g"
    assert out.channel == cluster.link("node0/cuda:1", "node1/cuda:0").channel
    assert out.channel != cluster.link("node1/cuda:1", "node0/cuda:0").channel
    assert [d.index for d in cluster.devices] == [0, 1, 0, 1]


def test_cpu_devices_and_memory_override() -> None:
    cluster = parse_cluster(
        HEAD + "nodes: [{name: a, devices: [{kind: cpu, cores: 4, count: 2, memory: 3GiB}, {kind: t4, memory: 1000}]}]",
        "c",
    )
    assert [(d.name, d.memory_bytes) for d in cluster.devices] == [
        ("cpu:0", 3 << 30),
        ("cpu:1", 3 << 30),
        ("cuda:0", 1000),
    ]
    assert cluster.devices[1].cores == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("nodes: []", "c:nodes"),
        ("nodes: [{name: a, devices: [{kind: nope}]}]", "c:nodes.a.devices"),
        ("nodes: [{name: a, devices: [{kind: t4, count: 0}]}]", "c:nodes.0.devices.0.count"),
        ("nodes: [{name: a, devices: [{kind: t4, cuont: 2}]}]", "c:nodes.0.devices.0.cuont"),
        ("nodes: [{name: a, devices: [{kind: t4, cores: 2}]}]", "c:nodes.a.devices"),
        ("nodes: [{name: a, devices: [{kind: t4, memory: lots}]}]", "c:nodes.a.devices.memory"),
        ("nodes: [{name: a, devices: [{kind: t4}], link: string}]", "c:nodes.a.link"),
        ("nodes: [{name: a, devices: [{kind: t4}]}, {name: b, devices: [{kind: t4}]}]", "c:network"),
        (
            "nodes: [{name: a, devices: [{kind: t4}]}, {name: a, devices: [{kind: t4}]}]\nnetwork: ethernet-10g",
            "c:nodes",
        ),
        (
            "nodes: [{name: a, devices: [{kind: t4, count: 2}], links: [{between: [0, 2], kind: nvlink1}]}]",
            "c:nodes.a.links",
        ),
        (
            "nodes: [{name: a, devices: [{kind: t4, count: 2}], links: [{between: [1, 1], kind: nvlink1}]}]",
            "c:nodes.a.links",
        ),
        (
            "nodes: [{name: a, devices: [{kind: t4}], uplinks: [{name: u, devices: [0]}, {name: v, devices: [0]}]}]",
            "c:nodes.a.uplinks",
        ),
        ("nodes: [{name: a, devices: [{kind: t4, count: 256}, {kind: t4}]}]", "c:nodes"),
        ("nodes: 3", "c:nodes"),
        ("nodes: []\nnodes: []", "c:3"),
    ],
)
def test_wrong_descriptions_are_refused_with_their_place(body: str, where: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_cluster(HEAD + body, "c")
    assert str(caught.value).startswith(where + ":")
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot be read"):
        load_cluster(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="UTF-8"):
        load_cluster(tmp_path / "b.yaml")


@pytest.mark.parametrize("text", ["", "hello", "[1]"])
def test_a_file_without_keys_is_named_without_words_of_the_library(text: str) -> None:
    with pytest.raises(ClusterError, match=r"^c\.yaml: holds no mapping"):
        parse_cluster(text, "c.yaml")
