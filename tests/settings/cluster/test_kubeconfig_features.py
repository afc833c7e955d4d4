"""What a kubeconfig asks for and a sidecar cannot do is a mistake of the kubeconfig, known when the file is read."""

import json
from pathlib import Path

import pytest

from sidecar.settings import SettingsError, load_cluster
from tests.kit.sidecar_process import command

Keys = dict[str, object]
INSTEAD = "give a proxy with http:// or https://, or forward a port (ssh -L, kubectl proxy) and set server and tls-server-name"


def kubeconfig(folder: Path, cluster: Keys | None = None, user: Keys | None = None) -> Path:
    """A kubeconfig whose cluster and user have these keys."""
    file = folder / "kubeconfig"
    config = {
        "current-context": "c",
        "clusters": [
            {"name": "other", "cluster": {"proxy-url": "socks5://127.0.0.1:1"}},
            {"name": "k", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}},
        ],
        "users": [{"name": "other", "user": {"as": "admin"}}, {"name": "u", "user": user or {"token": "very-secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    file.write_text(json.dumps(config))
    return file


def load(file: Path) -> None:
    load_cluster({"kubernetes": True, "cluster_id": "orders", "kubeconfig": str(file)})


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        (
            {"proxy-url": "socks5://user:very-secret@127.0.0.1:1080"},
            {},
            f'the cluster "k": proxy-url: socks5:// is not supported: {INSTEAD}',
        ),
        (
            {"proxy-url": "SOCKS5h://127.0.0.1:1080"},
            {},
            f'the cluster "k": proxy-url: socks5h:// is not supported: {INSTEAD}',
        ),
        ({"proxy-url": "very-secret:3128"}, {}, f'the cluster "k": proxy-url: is not a URL: {INSTEAD}'),
        ({"server": "127.0.0.1:6443"}, {}, 'the cluster "k": server: must begin with https:// or http://'),
        *(
            (
                {},
                {"token": "very-secret", key: value},
                f'the user "u": {key}: impersonation is not supported: give a user that has the rights itself',
            )
            for key, value in {"as": "admin", "as-uid": "7", "as-groups": ["a"], "as-user-extra": {"a": ["b"]}}.items()
        ),
        (
            {},
            {"auth-provider": {"name": "azure", "config": {"access-token": "very-secret"}}},
            'the user "u": auth-provider: "azure" is not supported: use its successor, a program (exec)',
        ),
        (
            {},
            {"exec": {"command": "no-such-program-of-a-cloud", "env": [{"name": "A", "value": "very-secret"}]}},
            'the user "u": exec: there is no program "no-such-program-of-a-cloud" that can be run: install it, or give its path',
        ),
        (
            {},
            {"exec": {"command": "./get-token"}},
            'the user "u": exec: there is no program "./get-token" that can be run: install it, or give its path',
        ),
        (
            {},
            {"exec": {"command": "true", "interactiveMode": "Always"}},
            'the user "u": exec: interactiveMode Always needs a terminal, which a sidecar does not have: set Never or IfAvailable',
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, cluster: Keys, user: Keys, problem: str) -> None:
    """With the cluster or the user that asks for it, and no secret."""
    file = kubeconfig(tmp_path, cluster, user)
    with pytest.raises(SettingsError) as error:
        load(file)
    assert str(error.value) == f"--kubeconfig: {file}: {problem}"


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"proxy-url": "http://user:very-secret@127.0.0.1:3128"}, {}),
        ({"proxy-url": "https://127.0.0.1:3128", "tls-server-name": "kubernetes"}, {}),
        ({"proxy-url": ""}, {}),
        ({"disable-compression": True, "extensions": [{"name": "x", "extension": {}}]}, {}),
        ({}, {"username": "admin", "password": "very-secret"}),
        ({}, {"exec": {"command": "true", "interactiveMode": "IfAvailable", "provideClusterInfo": True}}),
        ({}, {"auth-provider": {"name": "oidc", "config": {"id-token": "very-secret"}}}),
    ],
)
def test_what_can_be_done_is_accepted(tmp_path: Path, cluster: Keys, user: Keys) -> None:
    """Also what clusters and users of other contexts ask for."""
    load(kubeconfig(tmp_path, cluster, user))


def test_a_program_beside_the_kubeconfig_is_found(tmp_path: Path) -> None:
    """As kubectl finds it: what has a slash is relative to the file."""
    (tmp_path / "get-token").write_text("#!/bin/sh\n")
    (tmp_path / "get-token").chmod(0o700)
    load(kubeconfig(tmp_path, user={"exec": {"command": "./get-token"}}))


@pytest.mark.parametrize(
    "arguments",
    [
        ("who", "--kubernetes", "--cluster-id", "orders", "--kubeconfig", "KUBECONFIG"),
        ("config", "check", "--config", "CONFIG"),
        ("run", "--config", "CONFIG"),
    ],
    ids=["who", "config check", "run"],
)
def test_a_socks_proxy_is_refused_at_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As wrong usage, by each command that would connect."""
    file, config = kubeconfig(tmp_path, {"proxy-url": "socks5://127.0.0.1:1080"}), tmp_path / "sidecar.yaml"
    config.write_text(
        "kubernetes: {cluster_id: orders, kubeconfig: kubeconfig}\nreceivers: [{name: ops, urls: ['json://127.0.0.1:1']}]\n"
    )
    files = {"KUBECONFIG": str(file), "CONFIG": str(config)}
    ended = command(*(files.get(argument, argument) for argument in arguments))
    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert line.endswith(f'{file}: the cluster "k": proxy-url: socks5:// is not supported: {INSTEAD}')
