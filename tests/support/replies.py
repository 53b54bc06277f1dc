"""Replies in plain text that repair, or do not repair, the bug of `proven`."""

FIX = "Subtraction is wrong here.\n\n```bash\nsed -i 's/return a - b/return a + b/' calc.py\n```\n"
NO_FIX = "```bash\necho '# nothing' >> calc.py\n```\n"
SUBMIT = "```submit\n{}\n```\n"
