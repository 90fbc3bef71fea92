const @NAME@_weights *@NAME@_open(const void *bytes, size_t size)
{
    const @NAME@_weights *weights = bytes;
    if (bytes == NULL || size != sizeof *weights) return NULL;
    if (weights->magic != @PREFIX@_MAGIC || weights->fingerprint != @PREFIX@_FINGERPRINT) return NULL;
    return weights;
}
