"""Test prices and totals."""

from shop.prices import price, total


def test_a_price_is_in_cents() -> None:
    assert price(2) == 200


def test_a_total_has_the_tax_of_the_country() -> None:
    assert total([("book", 3)], "de", "somebody") == 3570
