
static const @NAME@_weights *weights;

static int read_weights(void)
{
    static @NAME@_weights bytes;
    FILE *file = fopen("@NAME@.weights", "rb");
    const size_t size = file ? fread(&bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    weights = @NAME@_open(&bytes, size);
    if (!weights) fprintf(stderr, "@NAME@.weights is not there, or has the weights of another model\n");
    return weights != NULL;
}

