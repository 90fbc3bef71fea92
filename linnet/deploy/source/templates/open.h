/* The weights in the `size` bytes of a file, at an address that is a multiple of 8; NULL if they are not those of
   this model. */
const @NAME@_weights *@NAME@_open(const void *bytes, size_t size);

