"""Corpora of texts that try to make agents misbehave, and where scenarios take them from.

A scenario names a corpus, such as `own?technique=role-play`, in a failure's `corpus` or in
`user.pushes_from`. When its suite is read to be published, `suite_with_corpora` puts the texts into
the suite and pins the corpus by its digest, so that a run needs no corpus and says which it used.
"""
