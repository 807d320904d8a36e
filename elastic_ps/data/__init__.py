"""The elastic data order gives a script its batches: every sample of an epoch once, over the whole job."""
