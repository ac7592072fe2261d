"""Session descriptions: parsing, offer and answer, codecs, SRTP keys."""
