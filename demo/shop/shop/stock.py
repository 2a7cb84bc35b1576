"""Stock on the shelves."""


class Shelf:
    def __init__(self, room):
        self.room = room
        self.items = {}

    def put(self, item, number):
        if sum(self.items.values()) + number > self.room:
            raise ValueError("the shelf is full")
        self.items[item] = self.items.get(item, 0) + number

    def take(self, item, number):
        left = self.items.get(item, 0) - number
        if left < 0:
            raise ValueError("there are not as many")
        self.items[item] = left

    def missing(self, wanted):
        return {item: number - self.items.get(item, 0) for item, number in wanted.items() if number > self.items.get(item, 0)}
