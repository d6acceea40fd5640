"""Step data in the forms that sessions and queues take: feeds, arrays, callbacks, infeed and outfeed queues."""
