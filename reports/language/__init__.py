"""Says the summary in the reader's language: a catalogue of sentences for each, numbers the same.

Sentences that the summary makes itself are asked for by their key; sentences that other parts of a
report wrote in English are recognised by the English catalogue. What no catalogue holds is said in
English, with a mark.
"""

from nsight_prof.reports.language.catalogue import ENGLISH, LANGUAGES, catalogue, english_sections
from nsight_prof.reports.language.words import Words, words_of

__all__ = ["ENGLISH", "LANGUAGES", "Words", "catalogue", "english_sections", "words_of"]
