/* Starts a program on a Cortex-M7 without an operating system, and reads and writes files of the host by
   semihosting: the emulator, or a debugger, does the work at the instruction `bkpt 0xab`. */
#include <stdint.h>
#include <stdio.h>

int main(int count, char **arguments);
void _start(void);

enum { OPEN = 0x01, CLOSE = 0x02, WRITE = 0x05, READ = 0x06, EXIT = 0x20 };
enum { STOPPED = 0x20026 };

static uint32_t host(uint32_t operation, const void *block)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void leave(int code)
{
    const uint32_t block[2] = {STOPPED, (uint32_t)code};
    host(EXIT, block);
    for (;;) {
    }
}

static uint32_t length(const char *text)
{
    const char *end = text;
    while (*end) end++;
    return (uint32_t)(end - text);
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE files[4];
    static int used = 0;
    /* In the order of semihosting, "rb" is 1 and "wb" is 5. */
    const uint32_t block[3] = {(uint32_t)path, mode[0] == 'r' ? 1 : 5, length(path)};
    FILE *file = &files[used++];
    file->handle = host(OPEN, block);
    return file->handle == UINT32_MAX ? 0 : file;
}

/* Semihosting returns the number of bytes that are left to do. */
static size_t whole(uint32_t left, size_t count)
{
    return left ? 0 : count;
}

size_t fread(void *buffer, size_t size, size_t count, FILE *file)
{
    const uint32_t block[3] = {file->handle, (uint32_t)buffer, size * count};
    return whole(host(READ, block), count);
}

size_t fwrite(const void *buffer, size_t size, size_t count, FILE *file)
{
    const uint32_t block[3] = {file->handle, (uint32_t)buffer, size * count};
    return whole(host(WRITE, block), count);
}

int fclose(FILE *file)
{
    return (int)host(CLOSE, &file->handle);
}

void _start(void)
{
    static char program[] = "program", inputs[] = "inputs", outputs[] = "outputs";
    static char *arguments[] = {program, inputs, outputs};
    /* Full access to the floating-point unit, coprocessors 10 and 11. */
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb");
    leave(main(3, arguments));
}

static void fault(void)
{
    leave(99);
}

extern char stack_top[];

/* The first word is the stack pointer, then come the handlers: reset, NMI and the faults. */
__attribute__((section(".vectors"), used)) static const struct {
    char *stack;
    void (*handlers[6])(void);
} vectors = {stack_top, {_start, fault, fault, fault, fault, fault}};
