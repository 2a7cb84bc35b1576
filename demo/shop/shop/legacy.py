"""The export of the old shop."""


def export(orders):
    for order in orders:
        print "order", order
