// Package bucket reads objects from a store that speaks the protocol of Amazon S3. It lists keys and gets objects, and
// its errors say what a user can do. It leaves to others what the objects are.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Bucket is one bucket of a store. It may be used by several goroutines.
type Bucket struct {
	client *s3.Client
	name   string
	server string // as errors name it

	// pause is how long to wait after a try that brought nothing.
	pause time.Duration
}

// Object is an object of a bucket, as a listing shows it.
type Object struct {
	Key  string
	Size int64 // bytes
}

// silence is how long a store may send nothing before its connection is given up.
const silence = time.Minute

// Open returns a bucket. The region, the credentials and the endpoint are those that AWS' own tools find: in the
// environment, in ~/.aws, or from the machine. An endpoint that is given comes before theirs. It asks nothing of the
// bucket yet.
func Open(ctx context.Context, name, endpoint string) (*Bucket, error) {
	return open(ctx, name, endpoint, silence)
}

func open(ctx context.Context, name, endpoint string, silence time.Duration) (*Bucket, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithHTTPClient(awshttp.NewBuildableClient().WithReadTimeout(silence)),
		config.WithLogger(logging.Nop{})) // errors have all that a user needs, in our words
	if err != nil {
		return nil, conf.Mistake(fmt.Errorf("settings of AWS: %w", err))
	}
	b := &Bucket{name: name, pause: time.Second}
	b.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if endpoint != "" { // not by LoadDefaultConfig, which would ask it for credentials, too
			o.BaseEndpoint = &endpoint
		}
		if o.BaseEndpoint != nil {
			// Other stores seldom have a host for each bucket, and most have no regions.
			o.UsePathStyle = true
			if o.Region == "" {
				o.Region = "us-east-1"
			}
		}
		// Other stores have no checksums of AWS' kind. The server checks the checksums in each block.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.APIOptions = append(o.APIOptions, leaveUnsigned)
	})
	o := b.client.Options()
	switch {
	case o.BaseEndpoint != nil:
		if err := checkEndpoint(*o.BaseEndpoint); err != nil {
			return nil, conf.Mistake(err)
		}
		b.server = *o.BaseEndpoint
	case o.Region == "":
		return nil, conf.Mistake(errors.New("no region: set AWS_REGION to that of the bucket, or AWS_PROFILE to a profile " +
			"that has one; a store of others than AWS needs --s3-endpoint or AWS_ENDPOINT_URL"))
	default:
		b.server = "AWS in " + o.Region
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, conf.Mistake(fmt.Errorf("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "+
			"AWS_PROFILE to a profile in ~/.aws that has some; AWS' tools look there and at the machine's role: %w", err))
	}
	return b, nil
}

// checkEndpoint refuses what is no address. It prints no credentials.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("endpoint %s: is no address of a store; write it like https://minio:9000", conf.ShowURL(text))
	case u.User != nil || u.RawQuery != "":
		return fmt.Errorf("endpoint %s: may have no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
			conf.ShowURL(text))
	}
	return nil
}

// leaveUnsigned leaves Accept-Encoding out of the signature of a request. Google's store changes this header on its
// way in, and would refuse the signature. (aws-sdk-go-v2 issue 1816)
func leaveUnsigned(stack *middleware.Stack) error {
	const header, signing = "Accept-Encoding", "Signing"
	value := "" // each request has a stack of its own
	step := func(name string, do func(http.Header)) middleware.FinalizeMiddleware {
		return middleware.FinalizeMiddlewareFunc(name, func(ctx context.Context, in middleware.FinalizeInput,
			next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if r, ok := in.Request.(*smithyhttp.Request); ok {
				do(r.Header)
			}
			return next.HandleFinalize(ctx, in)
		})
	}
	return errors.Join(
		stack.Finalize.Insert(step("TakeAcceptEncoding", func(h http.Header) {
			value = h.Get(header)
			h.Del(header)
		}), signing, middleware.Before),
		stack.Finalize.Insert(step("GiveAcceptEncoding", func(h http.Header) {
			if value != "" {
				h.Set(header, value)
			}
		}), signing, middleware.After))
}

// Folders returns the names of the folders directly below a prefix, in order: the parts of keys between the prefix and
// the next slash.
func (b *Bucket) Folders(ctx context.Context, prefix string) (names []string, err error) {
	err = b.pages(ctx, s3.ListObjectsV2Input{Prefix: &prefix, Delimiter: aws.String("/")},
		func(page *s3.ListObjectsV2Output) {
			for _, p := range page.CommonPrefixes {
				names = append(names, strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), prefix), "/"))
			}
		})
	return names, err
}

// List calls `each` with the objects whose keys begin with a prefix, in the order of keys.
func (b *Bucket) List(ctx context.Context, prefix string, each func(Object)) error {
	return b.pages(ctx, s3.ListObjectsV2Input{Prefix: &prefix}, func(page *s3.ListObjectsV2Output) {
		for _, o := range page.Contents {
			each(Object{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size)})
		}
	})
}

func (b *Bucket) pages(ctx context.Context, in s3.ListObjectsV2Input, each func(*s3.ListObjectsV2Output)) error {
	in.Bucket = &b.name
	for {
		page, err := b.client.ListObjectsV2(ctx, &in)
		if err != nil {
			return b.explain("list "+b.uri(*in.Prefix), err)
		}
		each(page)
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		last := aws.ToString(in.ContinuationToken)
		in.ContinuationToken = page.NextContinuationToken
		if next := aws.ToString(in.ContinuationToken); next == "" || next == last {
			return fmt.Errorf("list %s: the store says that there is more, and not how to go on", b.uri(*in.Prefix))
		}
	}
}

// uri returns the address of a key or a prefix.
func (b *Bucket) uri(key string) string { return "s3://" + b.name + "/" + key }
