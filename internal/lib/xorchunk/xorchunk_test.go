package xorchunk

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Chunks of all shapes have the samples that chunkenc's own iterator finds, bit by bit.
func TestLikeChunkenc(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 23))
	for n := range 2000 {
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		at, v := r.Int64()>>r.IntN(64), math.Float64frombits(r.Uint64())
		for range n % 300 {
			app.Append(0, at, v)
			switch r.IntN(4) {
			case 0:
				at += r.Int64() >> r.IntN(64) >> 1
			default:
				at += 15_000 + int64(r.IntN(3)-1)<<r.IntN(20)
			}
			switch r.IntN(5) {
			case 0:
				v = math.Float64frombits(r.Uint64())
			case 1:
				v += float64(r.IntN(1000))
			case 2:
				v = math.Float64frombits(math.Float64bits(v) ^ r.Uint64()>>r.IntN(64)<<r.IntN(64))
			}
		}
		got, err := Append(nil, c.Bytes())
		if err != nil {
			t.Fatalf("chunk %d: %v", n, err)
		}
		likeChunkenc(t, c.Bytes(), got)
	}
}

// likeChunkenc checks the samples of a chunk against chunkenc's own iterator.
func likeChunkenc(t *testing.T, chunk []byte, got []promql.FPoint) {
	t.Helper()
	c, err := chunkenc.FromData(chunkenc.EncXOR, chunk)
	if err != nil {
		t.Fatal(err)
	}
	it := c.Iterator(nil)
	i := 0
	for ; it.Next() == chunkenc.ValFloat; i++ {
		at, v := it.At()
		if i >= len(got) || got[i].T != at || math.Float64bits(got[i].F) != math.Float64bits(v) {
			t.Fatalf("sample %d of %x is %v, want %d %v", i, chunk, got[min(i, len(got)):], at, v)
		}
	}
	if it.Err() != nil || i != len(got) {
		t.Fatalf("%d samples of %x, want %d, %v", len(got), chunk, i, it.Err())
	}
}

// A damaged chunk is an error, or has samples that chunkenc's own iterator finds, too.
func FuzzAppend(f *testing.F) {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		f.Fatal(err)
	}
	for i := range int64(120) {
		app.Append(0, i*15_000+i%7*i, float64(i*i))
		f.Add(c.Bytes())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		if got, err := Append(nil, chunk); err == nil {
			likeChunkenc(t, chunk, got)
		}
	})
}

// Both ways to read the same chunks, side by side.
func BenchmarkAppend(b *testing.B) {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		b.Fatal(err)
	}
	for i := range int64(120) {
		app.Append(0, 1_700_000_000_000+i*15_000, float64(i*7))
	}
	b.Run("chunkenc", func(b *testing.B) {
		var it chunkenc.Iterator
		var all []promql.FPoint
		for b.Loop() {
			all = all[:0]
			for it = c.Iterator(it); it.Next() != chunkenc.ValNone; {
				t, v := it.At()
				all = append(all, promql.FPoint{T: t, F: v})
			}
		}
	})
	b.Run("xorchunk", func(b *testing.B) {
		var all []promql.FPoint
		for b.Loop() {
			all, _ = Append(all[:0], c.Bytes())
		}
	})
}
