"""What is publicly known about drivers, CUDA, torch wheels, GPUs and their known faults: tables with a source in every
row (`facts/data/`), and the questions that the rest of the program asks of them. Pure: nothing of a machine is read.
"""
