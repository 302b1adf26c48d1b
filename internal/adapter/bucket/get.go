package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// vainTries is how often an object is asked for in a row if no byte of it comes. The SDK has its own number of tries
// until an answer begins.
const vainTries = 3

// Read returns what is in a small object.
func (b *Bucket) Read(ctx context.Context, o Object) ([]byte, error) {
	var all bytes.Buffer
	err := b.get(ctx, o, &sink{w: &all, came: func(int) {}})
	return all.Bytes(), err
}

// Download writes an object to a new file. It tells `came` how many bytes have come since the last call.
func (b *Bucket) Download(ctx context.Context, o Object, path string, came func(int)) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(b.get(ctx, o, &sink{w: f, came: came}), f.Close())
}

// sink takes the bytes of an object, over several answers if the connection breaks.
type sink struct {
	w    io.Writer
	n    int64 // bytes that were taken
	err  error // of w
	tag  *string
	came func(int)
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.err = err
	s.came(n)
	return n, err
}

// brokenError is the error of an answer that broke off. The rest may come when it is asked for.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

// get writes an object. It has the size that the listing says.
func (b *Bucket) get(ctx context.Context, o Object, to *sink) error {
	for vain := 0; ; {
		before := to.n
		err := b.rest(ctx, o, to)
		if !errors.As(err, new(brokenError)) || ctx.Err() != nil {
			return err
		}
		if to.n > before {
			vain = 0
			continue
		}
		if vain++; vain == vainTries {
			return err
		}
		select {
		case <-time.After(b.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rest asks once for what is missing of an object.
func (b *Bucket) rest(ctx context.Context, o Object, to *sink) error {
	what := "get " + b.uri(o.Key)
	in := &s3.GetObjectInput{Bucket: &b.name, Key: &o.Key}
	if to.n > 0 {
		in.Range, in.IfMatch = aws.String(fmt.Sprintf("bytes=%d-", to.n)), to.tag
	}
	out, err := b.client.GetObject(ctx, in)
	if err != nil {
		return b.explain(what, err)
	}
	defer out.Body.Close()
	if err := fits(o, to.n, out); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	to.tag = out.ETag

	_, err = io.Copy(to, io.LimitReader(out.Body, o.Size-to.n+1))
	switch {
	case to.err != nil:
		return to.err
	case to.n > o.Size:
		return fmt.Errorf("%s: has more than the %d bytes of the listing; %w", what, o.Size, errChanged)
	case to.n == o.Size:
		return nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return brokenError{fmt.Errorf("%s: ended after %d of %d bytes: %w", what, to.n, o.Size, err)}
}

// fits returns an error if an answer does not have the bytes of an object from `from` on.
func fits(o Object, from int64, out *s3.GetObjectOutput) error {
	if from == 0 {
		if n := out.ContentLength; n != nil && *n != o.Size {
			return fmt.Errorf("has %d bytes, and %d in the listing; %w", *n, o.Size, errChanged)
		}
		return nil
	}
	got := aws.ToString(out.ContentRange)
	if !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", from)) || !strings.HasSuffix(got, fmt.Sprintf("/%d", o.Size)) {
		return fmt.Errorf("the answer broke off, and the store sent %.80q when asked for bytes from %d on", got, from)
	}
	return nil
}
