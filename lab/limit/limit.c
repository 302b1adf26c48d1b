/*
 * limit receives datagrams and counts them, and does nothing else. Its cost is what
 * this machine's kernel takes for receiving, the lower limit for every server.
 *
 *   limit recvfrom          UDP, one blocking call per datagram
 *   limit recvmmsg          UDP, one blocking call for all waiting datagrams
 *   limit sleep MS          UDP, take all waiting datagrams, then sleep for MS milliseconds
 *   limit gro               UDP, one blocking call for datagrams that the kernel joined
 *   limit unixgram PATH     Unix socket, one blocking call per datagram
 *
 * It prints "PID ADDRESS": the process to measure and its address, with a port that
 * the kernel chose. For each line on standard input it prints its counts since the
 * start, "DATAGRAMS BYTES DROPS". When standard input ends, it prints them once more
 * and ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104 /* Linux 5.0; the C library's headers may be older */
#endif
#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#define MEMINFO_DROPS 8 /* place in the array that SO_MEMINFO fills */
#define MEMINFO_VARS 9

#define RECEIVE_BUFFER (4 << 20) /* bytes, as Freshet asks for */
#define MAX_DATAGRAM (64 << 10)  /* bytes; joined datagrams (GRO) are as long */
#define MAX_PACKET (8 << 10)     /* bytes of each datagram in a batch */
#define BATCH 256                /* datagrams a call */

struct counts {
	uint64_t datagrams, bytes;
};

static void die(const char *what)
{
	fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The receiving process has one thread and does not answer requests: a second thread
 * would make each of its system calls a little more expensive. A child process reads
 * the counts from shared memory and answers. */
static void answer(const volatile struct counts *n, int fd)
{
	char line[16];
	int more;
	do {
		more = fgets(line, sizeof line, stdin) != NULL;
		uint32_t info[MEMINFO_VARS] = {0};
		socklen_t size = sizeof info;
		getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size);
		printf("%llu %llu %u\n", (unsigned long long)n->datagrams, (unsigned long long)n->bytes, info[MEMINFO_DROPS]);
		fflush(stdout);
	} while (more);
}

static int udp_socket(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0)
		die("socket");
	/* The first option may exceed net.core.rmem_max, and needs CAP_NET_ADMIN. */
	int size = RECEIVE_BUFFER;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) < 0)
		die("set the receive buffer");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof a;
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || getsockname(fd, (struct sockaddr *)&a, &length) < 0)
		die("bind to a port of 127.0.0.1");
	printf("%d 127.0.0.1:%d\n", getpid(), ntohs(a.sin_port));
	return fd;
}

static int unix_socket(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (fd < 0)
		die("socket");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		die(path);
	}
	strcpy(a.sun_path, path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
		die(path);
	printf("%d %s\n", getpid(), path);
	return fd;
}

static char buffers[BATCH][MAX_PACKET];

static void receive_one(int fd, volatile struct counts *n)
{
	for (;;) {
		ssize_t length = recvfrom(fd, buffers, MAX_DATAGRAM, 0, NULL, NULL);
		if (length < 0)
			die("recvfrom");
		n->datagrams++;
		n->bytes += length;
	}
}

static long pause_ms; /* argument of the method sleep; 0 for other methods */

/* receive_batches blocks if there is no pause. With a pause it takes all waiting
 * datagrams, and then sleeps. */
static void receive_batches(int fd, volatile struct counts *n)
{
	struct mmsghdr messages[BATCH] = {0};
	struct iovec pieces[BATCH];
	for (int i = 0; i < BATCH; i++) {
		pieces[i] = (struct iovec){buffers[i], MAX_PACKET};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
	}
	struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
	int flags = pause_ms ? MSG_DONTWAIT : MSG_WAITFORONE;
	for (;;) {
		int got = recvmmsg(fd, messages, BATCH, flags, NULL);
		if (got < 0 && errno != EAGAIN)
			die("recvmmsg");
		for (int i = 0; i < got; i++)
			n->bytes += messages[i].msg_len;
		if (got > 0)
			n->datagrams += got;
		if (pause_ms && got < BATCH)
			nanosleep(&pause, NULL);
	}
}

/* receive_joined counts the datagrams that were sent: the kernel joins datagrams of
 * one length, the last of which may be shorter, and reports that length. */
static void receive_joined(int fd, volatile struct counts *n)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on) < 0)
		die("setsockopt UDP_GRO");
	struct iovec piece = {buffers, MAX_DATAGRAM};
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	for (;;) {
		struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		ssize_t length = recvmsg(fd, &message, 0);
		if (length < 0)
			die("recvmsg");
		int segment = length;
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		if (c && c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
			memcpy(&segment, CMSG_DATA(c), sizeof segment);
		n->datagrams += segment ? (length + segment - 1) / segment : 1;
		n->bytes += length;
	}
}

static const struct method {
	const char *name;
	int words; /* of the command line */
	void (*receive)(int fd, volatile struct counts *n);
} methods[] = {
	{"recvfrom", 2, receive_one},  {"recvmmsg", 2, receive_batches}, {"sleep", 3, receive_batches},
	{"gro", 2, receive_joined},    {"unixgram", 3, receive_one},
};

static const struct method *chosen(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof methods / sizeof *methods; i++)
		if (!strcmp(argv[1], methods[i].name) && argc == methods[i].words)
			return &methods[i];
	fprintf(stderr, "usage: limit recvfrom | recvmmsg | sleep MS | gro | unixgram PATH\n");
	exit(2);
}

int main(int argc, char **argv)
{
	const struct method *m = chosen(argc, argv);
	if (!strcmp(m->name, "sleep") && (pause_ms = atol(argv[2])) < 1) {
		fprintf(stderr, "limit: sleep %s: must be a number of milliseconds, 1 or more\n", argv[2]);
		return 2;
	}
	int fd = !strcmp(m->name, "unixgram") ? unix_socket(argv[2]) : udp_socket();
	volatile struct counts *n = mmap(NULL, sizeof *n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n == MAP_FAILED)
		die("mmap");
	fflush(stdout); /* or the child would print the address once more */

	pid_t receiver = getpid(), child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		answer(n, fd);
		kill(receiver, SIGTERM);
		return 0;
	}
	m->receive(fd, n);
}
