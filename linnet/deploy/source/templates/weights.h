
/* The contents of the file @NAME@.weights: read it, or map it, as it is. */
#define @PREFIX@_MAGIC UINT64_C(0x315754454e4e494c)
typedef struct {
    uint64_t magic;
    uint64_t fingerprint;
    @MEMBERS@
} @NAME@_weights;

