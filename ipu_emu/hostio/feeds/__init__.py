"""Step data as sessions and queues take them: feeds, arrays, callbacks, infeed and outfeed queues."""
