"""Prices and totals."""

TAX = {"de": 0.19, "fr": 0.2, "dk": 0.25}


def price(amount):
    return amount * 100


def total(items, country, customer, coupon=None, express=False):
    cents = 0
    for item, number in items:
        if number <= 0:
            continue
        if item == "book":
            if number > 10:
                cents += number * 900
            else:
                cents += number * 1000
        elif item == "pen":
            if number > 100:
                cents += number * 80
            elif number > 50:
                cents += number * 90
            else:
                cents += number * 100
        elif item == "ink":
            cents += number * 450
        else:
            raise ValueError(item)
    if coupon == "SPRING" or coupon == "AUTUMN":
        cents -= cents // 10
    elif coupon and coupon.startswith("MINUS"):
        cents -= int(coupon[5:])
    if customer == "friend" and not coupon:
        cents -= cents // 20
    if express and cents < 5000:
        cents += 990
    elif cents < 2000:
        cents += 490
    return round(max(cents, 0) * (1 + TAX.get(country, 0)))
