#include "textflag.h"

// MARK sets ends and colons to those of the 16 bytes at offset.
#define MARK(offset, ends, colons) \
	MOVOU    offset(SI), X3; \
	MOVO     X3, X4;         \
	MOVO     X3, X5;         \
	PCMPEQB  X0, X3;         \
	PCMPEQB  X1, X4;         \
	PCMPEQB  X2, X5;         \
	POR      X4, X3;         \
	PMOVMSKB X3, ends;       \
	PMOVMSKB X5, colons

// MARK_BELOW puts those of the 16 bytes at offset below what R8 and R9 hold.
#define MARK_BELOW(offset) \
	MARK(offset, R10, R11); \
	SHLQ $16, R8;           \
	SHLQ $16, R9;           \
	ORQ  R10, R8;           \
	ORQ  R11, R9

// func markSSE2(b *byte, dst *marks, n int)
TEXT ·markSSE2(SB), NOSPLIT, $0-24
	MOVQ       b+0(FP), SI
	MOVQ       dst+8(FP), DI
	MOVQ       n+16(FP), CX
	MOVQ       $0x7c7c7c7c7c7c7c7c, AX // '|'
	MOVQ       AX, X0
	PUNPCKLQDQ X0, X0
	MOVQ       $0x0a0a0a0a0a0a0a0a, AX // '\n'
	MOVQ       AX, X1
	PUNPCKLQDQ X1, X1
	MOVQ       $0x3a3a3a3a3a3a3a3a, AX // ':'
	MOVQ       AX, X2
	PUNPCKLQDQ X2, X2

block:
	MARK(48, R8, R9)
	MARK_BELOW(32)
	MARK_BELOW(16)
	MARK_BELOW(0)
	MOVQ R8, 0(DI)
	MOVQ R9, 8(DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECQ CX
	JNZ  block
	RET
