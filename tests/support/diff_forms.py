"""Diffs in the forms that tools, mailers, editors and models write, and the tree that they apply to."""

from __future__ import annotations

import json

from pytest_ssr.patch import FileEntry
from pytest_ssr.patch.binary import blob_id
from pytest_ssr.patch.changes import SYMLINK

LINES = [f"line {n}" for n in range(1, 21)]
OLD = "".join(f"{line}\n" for line in LINES)
NEW = OLD.replace("line 9\n", "line nine\n")
BLOCK = "def f():\n    return 1\n\n\n"
TREE = {
    "shop.py": FileEntry(OLD.encode()),
    "pkg/deep/mod.py": FileEntry(OLD.encode()),
    "with space.py": FileEntry(OLD.encode()),
    "dé.py": FileEntry(OLD.encode()),
    "crlf.txt": FileEntry(OLD.replace("\n", "\r\n").encode()),
    "open.py": FileEntry(OLD.removesuffix("\n").encode()),
    "tabs.py": FileEntry(b"if x:\n\tone\n\ttwo\n\tthree\n\tfour\n\tfive\n"),
    "same.py": FileEntry((BLOCK * 8).encode()),
    "empty.py": FileEntry(b""),
    "run.sh": FileEntry(b"#!/bin/sh\necho hi\n", 0o100755),
    "data.bin": FileEntry(bytes(range(256))),
    "link.py": FileEntry(b"shop.py", SYMLINK),
    "shop.py.orig": FileEntry(b"kept\n"),
}

BODY = " line 6\n line 7\n line 8\n-line 9\n+line nine\n line 10\n line 11\n line 12\n"
HUNK = "@@ -6,7 +6,7 @@\n" + BODY
NAMES = "--- a/shop.py\n+++ b/shop.py\n"
HEAD = "diff --git a/shop.py b/shop.py\n"
INDEX = "index 1111111..2222222 100644\n"
GIT = HEAD + INDEX + NAMES + HUNK
BARE = HEAD + NAMES + HUNK
NEW_FILE = "diff --git a/more.py b/more.py\nnew file mode 100644\n--- /dev/null\n+++ b/more.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n"
MAIL = (
    "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\nFrom: Ann <ann@example.com>\n"
    "Date: Mon, 2 Feb 2026 10:00:00 +0000\nSubject: [PATCH 1/2] Name the ninth line\n\nIt is called nine.\n---\n"
    " shop.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n"
)
STAMP = "\t2026-02-02 10:00:00.000000000 +0000"
CONTEXT = (
    "*** a/shop.py"
    + STAMP
    + "\n--- b/shop.py"
    + STAMP
    + "\n***************\n*** 6,12 ****\n  line 6\n  line 7\n  line 8\n"
    "! line 9\n  line 10\n  line 11\n  line 12\n--- 6,12 ----\n  line 6\n  line 7\n  line 8\n! line nine\n  line 10\n"
    "  line 11\n  line 12\n"
)
SECOND = "@@ -14,4 +14,5 @@\n line 14\n line 15\n+line 15a\n line 16\n line 17\n"


def named(old: str, new: str | None = None, hunk: str = HUNK) -> str:
    """Return a diff with these names after `---` and `+++`."""
    return f"--- {old}\n+++ {new or old}\n{hunk}"


def at(start: int, body: str = BODY) -> str:
    """Return the change with other line numbers."""
    return f"@@ -{start},7 +{start},7 @@\n{body}"


def _binary(name: str) -> str:
    return f"diff --git a/{name} b/{name}\nindex 1111111..2222222 100644\nBinary files a/{name} and b/{name} differ\n"


# Common forms.
LISTED = {
    "as git writes it": GIT,
    "without an index line": BARE,
    "without a diff --git line": NAMES + HUNK,
    "with the times of diff -u": f"--- a/shop.py{STAMP}\n+++ b/shop.py{STAMP}\n{HUNK}",
    "of diff -ruN": f"diff -ruN a/shop.py b/shop.py\n--- a/shop.py{STAMP}\n+++ b/shop.py{STAMP}\n{HUNK}",
    "of diff -u with two names": "diff -u shop.py.bak shop.py\n" + named("shop.py.bak", "shop.py"),
    "of subversion": "Index: shop.py\n" + "=" * 67 + "\n" + NAMES + HUNK,
    "with a row of equals signs": "=" * 67 + "\n" + NAMES + HUNK,
    "without prefixes": named("shop.py"),
    "with i/ and w/": GIT.replace("a/shop", "i/shop").replace("b/shop", "w/shop"),
    "with c/ and i/": GIT.replace("a/shop", "c/shop").replace("b/shop", "i/shop"),
    "a mail": MAIL + GIT + "-- \n2.39.2\n\n",
    "of git show": "commit 0123456789abcdef0123456789abcdef01234567\nAuthor: Ann <ann@example.com>\n\n    nine\n\n"
    + GIT,
    "after prose": "The ninth line gets a name.\n\n" + BARE,
    "in a fence": "```diff\n" + BARE + "```\n",
    "before the end of a fence": BARE + "```",
    "in tags": "<patch>\n" + BARE + "</patch>\n",
    "before a blank line": BARE + "\n",
    "with blank lines between files": BARE + "\n\n" + NEW_FILE,
    "before prose": BARE + "\nThat is all.\n",
    "with a byte order mark": "\ufeff" + BARE,
    "with CRLF": BARE.replace("\n", "\r\n"),
    "with counts too small": BARE.replace("-6,7 +6,7", "-6,6 +6,6"),
    "without counts and context": HEAD + NAMES + "@@ -9 +9 @@\n-line 9\n+line nine\n",
    "with dots for line numbers": HEAD + NAMES + "@@ ... @@\n line 8\n-line 9\n+line nine\n line 10\n",
    "thirty lines too low": HEAD + NAMES + at(36),
    "with another first line": BARE.replace(" line 6\n", " Line 6\n"),
    "with blanks after a line": BARE.replace(" line 7\n", " line 7  \n"),
    "without a newline at its end": BARE.rstrip("\n"),
    "with a new program": "diff --git a/go.sh b/go.sh\nnew file mode 100755\n--- /dev/null\n+++ b/go.sh\n@@ -0,0 +1 @@\n+go\n"
    + BARE,
    "with a quoted name": BARE
    + NEW_FILE.replace("a/more.py", '"a/m\\303\\266re.py"').replace("b/more.py", '"b/m\\303\\266re.py"'),
    "with a submodule": BARE
    + "diff --git a/sub b/sub\nindex 1111111..2222222 160000\n--- a/sub\n+++ b/sub\n@@ -1 +1 @@\n"
    + f"-Subproject commit {'1' * 40}\n+Subproject commit {'2' * 40}\n",
    "with a new binary file without content": "diff --git a/x.pyc b/x.pyc\nnew file mode 100644\nindex 0000000..2222222\n"
    + "Binary files /dev/null and b/x.pyc differ\n"
    + BARE,
    "with ./ before the names": named("./shop.py"),
    "with absolute names": named("/testbed/shop.py"),
    "after a warning of git": "warning: in the working copy of 'shop.py', CRLF will be replaced by LF\n" + BARE,
    "with an empty new file": BARE + "diff --git a/new.orig b/new.orig\nnew file mode 100644\nindex 0000000..e69de29\n",
}

RENAME = "diff --git a/shop.py b/store.py\nsimilarity index 95%\nrename from shop.py\nrename to store.py\n"
ONE_FILE_OF_TWO = BARE + named("a/pkg/deep/mod.py", "b/pkg/deep/mod.py").replace(" line 6\n", " Line six\n")
BLOBS = GIT.replace("1111111..2222222", "..".join(blob_id(x.encode(), size=40).decode()[:10] for x in (OLD, NEW)))
REVERSED = BARE.replace("-line 9\n+line nine\n", "-line nine\n+line 9\n")

# More forms, most of them from public reports: see tests/door/README.md.
FURTHER = {
    "three lines too low": HEAD + NAMES + at(9),
    "above the file": HEAD + NAMES + at(1),
    "counts far too large": BARE.replace("-6,7 +6,7", "-6,27 +6,27"),
    "counts too large before another file": BARE.replace("-6,7 +6,7", "-6,9 +6,10") + NEW_FILE,
    "a new file with too small a count": NEW_FILE.replace("+1,2", "+1,1"),
    "a new file with too large a count": NEW_FILE.replace("+1,2", "+1,9"),
    "a count of the new side only": BARE.replace("-6,7 +6,7", "-6,7 +6,8"),
    "several fences": "First:\n```diff\n" + BARE + "```\nThen:\n```diff\n" + NEW_FILE + "```\n",
    "a fence in a fence": "````markdown\n```diff\n" + BARE + "```\n````\n",
    "a tilde fence": "~~~\n" + BARE + "~~~\n",
    "prose with a diff in it": "I ran diff --git and git diff; see --- below.\n+++ much better +++\n" + BARE + "\nI hope that it helps.\n",
    "a series of mails": MAIL + GIT + "-- \n2.39.2\n\n" + MAIL.replace("1/2", "2/2") + NEW_FILE + "-- \n2.39.2\n\n",
    "a series that changes a file twice": MAIL + GIT + "-- \n2.39.2\n\n" + MAIL + HEAD + NAMES
    + "@@ -8,3 +8,4 @@\n line 8\n line nine\n+line 9a\n line 10\n" + "-- \n2.39.2\n",
    "a quoted mail": "".join(f"> {line}\n" for line in BARE.splitlines()),
    "an indented diff": "".join(f"    {line}\n" for line in BARE.splitlines()),
    "indented by a tab": "".join(f"\t{line}\n" for line in BARE.splitlines()),
    "a list item": "- " + BARE,
    "a dash-escaped mail": "".join(f"- {x}\n" if x.startswith("-") else f"{x}\n" for x in BARE.splitlines()),
    "JSON text": json.dumps(BARE),
    "backslash n instead of newlines": BARE.replace("\n", "\\n"),
    "HTML entities": (NAMES + HUNK).replace("+++", "&#43;&#43;&#43;").replace("-", "&#45;"),
    "colours": "".join(f"\x1b[1m{x}\x1b[m\n" for x in BARE.splitlines()),
    "old mac newlines": BARE.replace("\n", "\r"),
    "CRLF in the header only": (HEAD + NAMES).replace("\n", "\r\n") + HUNK,
    "CRLF in the hunk only": HEAD + NAMES + HUNK.replace("\n", "\r\n"),
    "LF for a file with CRLF": BARE.replace("shop.py", "crlf.txt"),
    "CRLF for a file with CRLF": BARE.replace("shop.py", "crlf.txt").replace("\n", "\r\n"),
    "CRLF lines in a diff with LF": HEAD.replace("shop.py", "crlf.txt") + NAMES.replace("shop.py", "crlf.txt")
    + "".join(f"{x}\r\n" if not x.startswith("@@") else f"{x}\n" for x in HUNK.splitlines()),
    "a diff of a context diff": CONTEXT,
    "a context diff with an Index line": "Index: shop.py\n" + CONTEXT,
    "a normal diff": "9c9\n< line 9\n---\n> line nine\n",
    "a normal diff with an Index line": "Index: shop.py\n9c9\n< line 9\n---\n> line nine\n",
    "of mercurial": "# HG changeset patch\n# User ann\n# Date 0 0\nnine\n\ndiff -r 0123456789ab shop.py\n" + f"--- a/shop.py{STAMP}\n+++ b/shop.py{STAMP}\n" + HUNK,
    "of bazaar": f"=== modified file 'shop.py'\n--- old/shop.py{STAMP}\n+++ new/shop.py{STAMP}\n{HUNK}",
    "of perforce": "==== //depot/shop.py#1 - /home/ann/shop.py ====\n" + named("a/shop.py", "b/shop.py"),
    "of subversion with revisions": "Index: shop.py\n" + "=" * 67 + "\n" + named("shop.py\t(revision 12)", "shop.py\t(working copy)"),
    "of quilt": "Description: nine\nForwarded: no\n---\nThis file is part of it.\nIndex: b/shop.py\n" + "=" * 67 + "\n" + NAMES + HUNK,
    "of a combined merge": "diff --cc shop.py\nindex 1111111,2222222..3333333\n" + NAMES + "@@@ -9,1 -9,1 +9,1 @@@\n- line 9\n -line 9\n++line nine\n",
    "of --word-diff": HEAD + INDEX + NAMES + "@@ -6,7 +6,7 @@\nline 6\nline 7\nline 8\nline [-9-]{+nine+}\nline 10\nline 11\nline 12\n",
    "of --stat only": " shop.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n",
    "of --raw -p": ":100644 100644 1111111 2222222 M\tshop.py\n\n" + GIT,
    "with a stat before it": " shop.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n\n" + GIT,
    "of -U0": HEAD + INDEX + NAMES + "@@ -9 +9 @@ line 8\n-line 9\n+line nine\n",
    "of -U0, two hunks": HEAD + NAMES + "@@ -9 +9 @@\n-line 9\n+line nine\n@@ -15,0 +16 @@\n+line 15a\n",
    "of -U0, at the wrong line": HEAD + NAMES + "@@ -7 +7 @@\n-line 9\n+line nine\n",
    "of -U1": HEAD + NAMES + "@@ -8,3 +8,3 @@\n line 8\n-line 9\n+line nine\n line 10\n",
    "of -U10": HEAD + NAMES + "@@ -1,19 +1,19 @@\n" + "".join(f" {x}\n" for x in LINES[:8]) + "-line 9\n+line nine\n" + "".join(f" {x}\n" for x in LINES[9:19]),
    "of --function-context": HEAD + NAMES + "@@ -1,20 +1,20 @@\n" + "".join(f" {x}\n" for x in LINES[:8]) + "-line 9\n+line nine\n" + "".join(f" {x}\n" for x in LINES[9:]),
    "of --full-index --binary": HEAD + f"index {'1' * 40}..{'2' * 40} 100644\n" + NAMES + HUNK,
    "with src/ and dst/ prefixes": GIT.replace("a/shop", "src/shop").replace("b/shop", "dst/shop"),
    "with a prefix of two folders": GIT.replace("a/shop", "x/y/shop").replace("b/shop", "x/y/shop"),
    "without prefixes, by git": (HEAD + INDEX + NAMES + HUNK).replace("a/shop", "shop").replace("b/shop", "shop"),
    "without prefixes, in a folder, by git": GIT.replace("a/shop.py", "pkg/deep/mod.py").replace("b/shop.py", "pkg/deep/mod.py"),
    "without prefixes, in a folder": named("pkg/deep/mod.py"),
    "a prefix on one side": named("a/shop.py", "shop.py"),
    "names of two files": named("a/shop.py", "b/pkg/deep/mod.py"),
    "the folder of the checkout in the names": BARE.replace("a/shop.py", "a/testbed/shop.py").replace("b/shop.py", "b/testbed/shop.py"),
    "the name of the file only": named("a/mod.py", "b/mod.py"),
    "a name with a space": BARE.replace("shop.py", "with space.py"),
    "a name with a space, and a tab after it": BARE.replace("a/shop.py\n+", "a/with space.py\t\n+").replace("b/shop.py\n@", "b/with space.py\t\n@").replace("shop.py", "with space.py"),
    "a name with a space, plain": named("a/with space.py", "b/with space.py"),
    "a name with a space, and times": named(f"a/with space.py{STAMP}", f"b/with space.py{STAMP}"),
    "a name with an umlaut": BARE.replace("shop.py", "dé.py"),
    "a name with an umlaut, quoted": BARE.replace("a/shop.py", '"a/d\\303\\251.py"').replace("b/shop.py", '"b/d\\303\\251.py"'),
    "times after a space": named("a/shop.py 2026-02-02 10:00:00", "b/shop.py 2026-02-02 10:00:01"),
    "times of an old date": named("a/shop.py\tThu Jan  1 00:00:00 1970", "b/shop.py\tMon Feb  2 10:00:00 2026"),
    "a deletion by its time": "--- a/empty.py" + STAMP + "\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
    "a new file by its time": "--- more.py\tThu Jan  1 00:00:00 1970\n+++ more.py\tMon Feb  2 10:00:00 2026\n@@ -0,0 +1 @@\n+x\n",
    "a new file by an epoch in UTC": "--- a/more.py\t1970-01-01 00:00:00.000000000 +0000\n+++ b/more.py\t2026-02-02 10:00:00.000000000 +0000\n@@ -0,0 +1 @@\n+x\n",
    "a new file, plain": "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n",
    "a new file without a mode": NEW_FILE.replace("new file mode 100644\n", ""),
    "a new file in a new folder": NEW_FILE.replace("more.py", "a new/folder/more.py"),
    "a new file that exists": NEW_FILE.replace("more.py", "shop.py"),
    "a new file with the content that exists": "diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo hi\n",
    "a new file at an empty one": NEW_FILE.replace("more.py", "empty.py"),
    "an empty new file": "diff --git a/more/__init__.py b/more/__init__.py\nnew file mode 100644\nindex 0000000..e69de29\n",
    "a deletion": "diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n--- a/run.sh\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-#!/bin/sh\n-echo hi\n",
    "a deletion, plain": "--- a/run.sh\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-#!/bin/sh\n-echo hi\n",
    "a deletion of other content": "diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n--- a/run.sh\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-#!/bin/sh\n-echo ho\n",
    "a deletion without the lines": "diff --git a/run.sh b/run.sh\ndeleted file mode 100755\nindex 1111111..0000000\n",
    "a deletion of an empty file": "diff --git a/empty.py b/empty.py\ndeleted file mode 100644\nindex e69de29..0000000\n",
    "a rename": RENAME.replace("95%", "100%"),
    "a rename with a change": RENAME + "--- a/shop.py\n+++ b/store.py\n" + HUNK,
    "a rename with an offset": RENAME + "--- a/shop.py\n+++ b/store.py\n" + at(9),
    "a rename with fuzz": RENAME + "--- a/shop.py\n+++ b/store.py\n" + HUNK.replace(" line 6\n", " Line 6\n"),
    "a rename without rename lines": "diff --git a/shop.py b/store.py\n--- a/shop.py\n+++ b/store.py\n" + HUNK,
    "a rename onto a file": RENAME.replace("store.py", "empty.py"),
    "a copy": "diff --git a/shop.py b/store.py\nsimilarity index 100%\ncopy from shop.py\ncopy to store.py\n",
    "a copy with a change and an offset": "diff --git a/shop.py b/store.py\nsimilarity index 90%\ncopy from shop.py\ncopy to store.py\n--- a/shop.py\n+++ b/store.py\n" + at(9),
    "a mode": "diff --git a/shop.py b/shop.py\nold mode 100644\nnew mode 100755\n",
    "a mode and a change with fuzz": "diff --git a/shop.py b/shop.py\nold mode 100644\nnew mode 100755\n" + NAMES + HUNK.replace(" line 6\n", " Line 6\n"),
    "a change of a program with fuzz": "--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n #!/bin/bash\n-echo hi\n+echo ho\n",
    "no newline at the end of the file": "--- a/open.py\n+++ b/open.py\n@@ -18,3 +18,3 @@\n line 18\n line 19\n-line 20\n\\ No newline at end of file\n+line twenty\n\\ No newline at end of file\n",
    "the note about the newline is missing": "--- a/open.py\n+++ b/open.py\n@@ -18,3 +18,3 @@\n line 18\n line 19\n-line 20\n+line twenty\n",
    "a note about a newline too many": "--- a/shop.py\n+++ b/shop.py\n@@ -18,3 +18,3 @@\n line 18\n line 19\n-line 20\n\\ No newline at end of file\n+line twenty\n\\ No newline at end of file\n",
    "the note in another language": "--- a/open.py\n+++ b/open.py\n@@ -18,3 +18,3 @@\n line 18\n line 19\n-line 20\n\\ Kein Zeilenumbruch am Dateiende.\n+line twenty\n\\ Kein Zeilenumbruch am Dateiende.\n",
    "tabs as spaces": named("a/tabs.py", "b/tabs.py", "@@ -1,5 +1,5 @@\n if x:\n         one\n-        two\n+        2\n         three\n         four\n"),
    "tabs as spaces in context": named("a/tabs.py", "b/tabs.py", "@@ -1,5 +1,5 @@\n if x:\n         one\n-\ttwo\n+\t2\n         three\n         four\n"),
    "empty context lines without their blank": named("a/same.py", "b/same.py", "@@ -5,6 +5,6 @@\n def f():\n-    return 1\n+    return 2\n\n\n def f():\n     return 1\n"),
    "one of equal places": named("a/same.py", "b/same.py", "@@ -13,4 +13,4 @@\n def f():\n-    return 1\n+    return 2\n \n \n"),
    "between equal places": named("a/same.py", "b/same.py", "@@ -15,4 +15,4 @@\n def f():\n-    return 1\n+    return 2\n \n \n"),
    "other old than new line numbers": named("a/same.py", "b/same.py", "@@ -5,4 +21,4 @@\n def f():\n-    return 1\n+    return 2\n \n \n"),
    "one of equal places, strict, with other new line numbers": "diff --git a/same.py b/same.py\n" + named("a/same.py", "b/same.py", "@@ -5,4 +21,4 @@\n def f():\n-    return 1\n+    return 2\n \n \n"),
    "equal places without context after": "diff --git a/same.py b/same.py\n" + named("a/same.py", "b/same.py", "@@ -5,2 +5,2 @@\n def f():\n-    return 1\n+    return 2\n"),
    "no context before": HEAD + NAMES + "@@ -9,4 +9,4 @@\n-line 9\n+line nine\n line 10\n line 11\n line 12\n",
    "no context after": HEAD + NAMES + "@@ -6,4 +6,4 @@\n line 6\n line 7\n line 8\n-line 9\n+line nine\n",
    "hunks in the wrong order": HEAD + NAMES + SECOND + HUNK,
    "overlapping hunks": HEAD + NAMES + HUNK + "@@ -10,5 +10,5 @@\n line 10\n line 11\n-line 12\n+line twelve\n line 13\n line 14\n",
    "one hunk of two does not fit": HEAD + NAMES + HUNK + SECOND.replace("line 1", "row 1"),
    "one file of two does not fit": BARE + NEW_FILE.replace("new file mode 100644\n", "").replace("/dev/null", "a/more.py").replace("-0,0 +1,2", "-1,2 +1,2").replace("+x = 1", "-x = 1"),
    "one file of two needs fuzz": ONE_FILE_OF_TWO,
    "a file changed twice": BARE + HEAD + NAMES + SECOND,
    "the same change twice": BARE + "\n" + BARE,
    "the same change twice, of the file that is there": BLOBS + "\n" + BLOBS,
    "a change that is made already": REVERSED,
    "one of two changes is made already": REVERSED + NEW_FILE,
    "nothing but context": HEAD + NAMES + "@@ -6,3 +6,3 @@\n line 6\n line 7\n line 8\n",
    "a header without hunks": HEAD + NAMES,
    "a hunk without a file": HUNK,
    "cut in a hunk": BARE[: len(BARE) - 20],
    "cut in a header": BARE + NEW_FILE[:40],
    "a file that does not exist": BARE.replace("shop.py", "none.py"),
    "a symlink and a change": BARE + "diff --git a/alias.py b/alias.py\nnew file mode 120000\nindex 0000000..1111111\n--- /dev/null\n+++ b/alias.py\n@@ -0,0 +1 @@\n+shop.py\n\\ No newline at end of file\n",
    "a change of a binary file without content": _binary("data.bin") + BARE,
    "a change, and a binary file without content": BARE + _binary("data.bin"),
    "binary files of diff -r": "Binary files a/data.bin and b/data.bin differ\n" + NAMES + HUNK + "Only in b: more\n",
    "only a binary file without content": _binary("data.bin"),
    "a binary file by git --binary": "diff --git a/more.bin b/more.bin\nnew file mode 100644\n"
    + f"index {'0' * 40}..f76dd238ade08917e6712764a16a22005a50573d\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n",
    "text at the end": BARE + "Binary file note: none\nEnd.\n",
    "a script of ed": "Index: shop.py\n9c\nline nine\n.\n",
    "a script of ed that writes elsewhere": "--- a/shop.py\n+++ b/shop.py\n9c\nline nine\n.\nw ../../elsewhere\nr !touch ../../elsewhere\n",
    "lines like a script of ed in a change": BARE.replace("+line nine\n", "+9d\n") .replace(" line 6\n", " Line 6\n"),
    "a blank answer": "I could not find a bug.\n",
    "a search and replace block": "shop.py\n<<<<<<< SEARCH\nline 9\n=======\nline nine\n>>>>>>> REPLACE\n",
    "an apply_patch block": "*** Begin Patch\n*** Update File: shop.py\n@@\n line 8\n-line 9\n+line nine\n*** End Patch\n",
    "a git log with two commits": "commit 1\n\n    one\n\n" + GIT + "\ncommit 2\n\n    two\n\n" + NEW_FILE,
}  # fmt: skip
