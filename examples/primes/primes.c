/* Counts the primes below a number with the sieve of Eratosthenes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    char *end = "";
    errno = 0;
    unsigned long limit = argc > 1 ? strtoul(argv[1], &end, 10) : 100000;
    if (errno || *end || limit < 2 || limit > 40000000) {
        fprintf(stderr, "usage: primes [LIMIT], from 2 to 40000000\n");
        return 2;
    }
    unsigned char *composite = calloc(limit, 1);
    if (!composite) {
        fprintf(stderr, "primes: not enough memory for %lu numbers\n", limit);
        return 1;
    }
    unsigned long count = 0;
    for (unsigned long n = 2; n < limit; n++) {
        if (composite[n])
            continue;
        count++;
        for (unsigned long multiple = n * n; multiple < limit; multiple += n)
            composite[multiple] = 1;
    }
    printf("There are %lu primes below %lu.\n", count, limit);
    free(composite);
    return 0;
}
