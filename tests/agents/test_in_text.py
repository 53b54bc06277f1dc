"""Which texts are replies of a model, and which are commands."""

from __future__ import annotations

import pytest

from harness.agents.tools.in_text import is_reply


@pytest.mark.parametrize(
    "text",
    [
        "<execute>ls -la</execute>",
        "<plan>look around</plan>\n<execute>cat <<END\na\nEND\n</execute>",
        "<plan>look around</plan>",
        "I look.\n\n```bash\nls\n```\nThen I repair it.",
        "I look.\n  ~~~bash\nls\n",
        "<execute>ls",
        'Now <tool_call>{"name": "submit"}</tool_call>',
    ],
)
def test_a_reply_has_a_block_or_a_tag(text: str) -> None:
    assert is_reply(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ls -la",
        "grep -n '```' README.md",
        "cat > README.md <<'END'\n```bash\nls\n```\n<execute>ls</execute>\nEND",
        "sort < names.txt > sorted.txt",
        "diff <(ls) <(ls -a)",
        "echo `date` ```",
        "python - <<< 'print(1)'",
    ],
)
def test_a_command_has_them_in_here_documents_only(text: str) -> None:
    assert not is_reply(text)
