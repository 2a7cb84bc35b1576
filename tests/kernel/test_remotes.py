"""URLs of remotes: their parts, what is shown of them, what is refused, and the page on which two branches are compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.pull_requests.rules import Forge, compare_url, parse, scrubbed
from supervisor.kernel.errors import Refused

COMPARED = [
    ("https://github.com/o/r.git", Forge.GITHUB, "https://github.com/o/r/compare/main...a/b%20c?expand=1"),
    ("git@github.com:o/r.git", Forge.GITHUB, "https://github.com/o/r/compare/main...a/b%20c?expand=1"),
    ("ssh://git@ssh.github.com:443/o/r", Forge.GITHUB, "https://github.com/o/r/compare/main...a/b%20c?expand=1"),
    ("https://me:secret@github.example.org:8443/o/r/", Forge.GITHUB, "https://github.example.org:8443/o/r/compare/main...a/b%20c?expand=1"),
    ("https://x.ghe.com/o/r", Forge.GITHUB, "https://x.ghe.com/o/r/compare/main...a/b%20c?expand=1"),
    (
        "git+ssh://git@gitlab.com/g/s/r.git", Forge.GITLAB,
        "https://gitlab.com/g/s/r/-/merge_requests/new?merge_request%5Bsource_branch%5D=a%2Fb%20c&merge_request%5Btarget_branch%5D=main",
    ),
    ("git@bitbucket.org:o/r.git", Forge.BITBUCKET, "https://bitbucket.org/o/r/pull-requests/new?source=a%2Fb%20c&dest=main&t=1"),
    ("https://codeberg.org/o/r.git", Forge.GITEA, "https://codeberg.org/o/r/compare/main...a/b%20c"),
    ("http://gitea.lan:3000/o/r.git", Forge.GITEA, "http://gitea.lan:3000/o/r/compare/main...a/b%20c"),
    ("https://git.example.org/o/r.git", Forge.UNKNOWN, ""),
    ("/srv/git/r.git", Forge.UNKNOWN, ""),
    ("file:///srv/git/r.git", Forge.UNKNOWN, ""),
    ("git@[::1]:r.git", Forge.UNKNOWN, ""),
]  # fmt: skip


@pytest.mark.parametrize(("url", "forge", "page"), COMPARED)
def test_where_two_branches_are_compared(url: str, forge: Forge, page: str) -> None:
    assert (parse(url).forge, compare_url(parse(url), "main", "a/b c")) == (forge, page)


PLAIN = {
    "https://me:secret@host/o/r.git": "https://host/o/r.git",
    "https://ghp_token@host:8443/o/r": "https://host:8443/o/r",
    "http://me:p%40ss@host/o/r": "http://host/o/r",
    "ssh://git:secret@host:22/o/r": "ssh://git@host:22/o/r",
    "git@host:o/r.git": "git@host:o/r.git",
    "host:o/r.git": "host:o/r.git",
    "user:x@host:r": None,
    "https://[::1]:8080/o/r": "https://[::1]:8080/o/r",
    "https://host:/o/r": "https://host/o/r",
    "git://host/o/r": "git://host/o/r",
    "/a:b/c": "/a:b/c",
    "file:///a/b": "file:///a/b",
}


@pytest.mark.parametrize(("url", "plain"), [pair for pair in PLAIN.items() if pair[1] is not None])
def test_what_is_shown_opens_nothing(url: str, plain: str) -> None:
    assert parse(url).plain == plain and parse(plain).plain == plain


def test_a_user_and_a_password_are_as_git_would_send_them() -> None:
    assert (parse("http://me:p%40ss@host/o/r").user, parse("http://me:p%40ss@host/o/r").password) == ("me", "p@ss")


@pytest.mark.parametrize(
    "url",
    [
        "", "ext::sh -c 'touch x' %S", "fd::7", "ftp://host/r", "file://host/r", "rel/path", "./r", "../r", "https://-oProxyCommand=x/r",
        "-oProxyCommand=x:r", "https://host/r?private_token=1", "https://host/r#x", "https://host:port/r", "https://ho st/r", "a\nb",
        "https://host/\x1b", "https://[::1/r", "ssh://$(x)/r", "https:///r",
    ],
)  # fmt: skip
def test_what_is_never_pushed_to(url: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(url)
    assert refused.value.hint


def test_users_and_passwords_are_taken_out_of_what_others_say() -> None:
    said = "unable to access 'https://me:se@cret@host/o': no; see http://host/a@b and ssh://git@host/x"
    assert scrubbed(said) == "unable to access 'https://host/o': no; see http://host/a@b and ssh://host/x"


@given(st.text(max_size=60) | st.from_regex(r"(https|ssh|git|file|ext)(://|::)?[a-z:@/%\[\]0-9?#.-]{0,30}", fullmatch=True))
def test_whatever_was_typed_is_refused_or_has_a_form_that_means_the_same(url: str) -> None:
    try:
        parsed = parse(url)
    except Refused:
        return
    assert parse(parsed.plain).plain == parsed.plain
    assert not parsed.password or parsed.scheme == "ssh" or f":{parsed.password}@" not in parsed.plain
