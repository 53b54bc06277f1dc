"""A project with pytest's tests, some of whose ids hold spaces."""

from __future__ import annotations

PROJECT = {
    "pricing.py": (
        "def total(prices, discount=0):\n"
        "    if discount < 0 or discount > 100:\n"
        "        raise ValueError(discount)\n"
        "    return sum(prices) * (100 - discount) / 100\n\n\n"
        "def cheapest(prices):\n"
        "    found = None\n"
        "    for price in prices:\n"
        "        if found is None or price < found:\n"
        "            found = price\n"
        "    return found\n\n\n"
        "def label(name, price):\n"
        "    return f'{name.strip()}: {price:.2f}'\n"
    ),
    "tests/test_pricing.py": (
        "import pytest\n\nfrom pricing import cheapest, label, total\n\n\n"
        "def test_total():\n    assert total([1, 2, 3]) == 6\n\n\n"
        "def test_discount():\n    assert total([100], 25) == 75\n\n\n"
        "@pytest.mark.parametrize('wrong', [-1, 101])\n"
        "def test_no_such_discount(wrong):\n    with pytest.raises(ValueError):\n        total([1], wrong)\n\n\n"
        "@pytest.mark.parametrize('prices', [[3, 1, 2], [1, 2], [2, 2, 1]])\n"
        "def test_cheapest(prices):\n    assert cheapest(prices) == 1\n\n\n"
        "def test_cheapest_of_none():\n    assert cheapest([]) is None\n\n\n"
        "@pytest.mark.parametrize('name', ['a b', ' a b ', 'a  b'])\n"
        "def test_label(name):\n    assert label(name, 1).endswith(': 1.00')\n\n\n"
        "def test_label_is_stripped():\n    assert label(' a ', 2) == 'a: 2.00'\n"
    ),
}
