"""Are the solutions of role-plays better than single answers? (paper, section 5.1)"""
