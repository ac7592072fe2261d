"""The agent in a call: turn taking, detection, recognition, language model, tools."""
