"""Stands for Poplar's profile analysis; there are no profiles here."""


class ProgramVisitor:
    pass


def openReport(path):
    raise NotImplementedError("emulated IPUs write no profiles")
