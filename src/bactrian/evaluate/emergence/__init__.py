"""Does knowledge emerge as a model is trained on one kind of conversations after another? (paper, section 5.2)"""
