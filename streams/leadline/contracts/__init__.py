"""What crosses a wire: records, the codec, the table of topics, derived ids."""
