package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

var (
	// ErrGone means that an object was deleted since it was listed.
	ErrGone = errors.New("it was deleted meanwhile; run the command again")

	// ErrRefused means that the store refuses the bucket or the credentials. Other requests would fail, too.
	ErrRefused = errors.New("refused")

	errChanged = errors.New("it was changed meanwhile; run the command again")
)

// refusedError is an error that is ErrRefused, without its text.
type refusedError struct{ error }

func (refusedError) Is(target error) bool { return target == ErrRefused }

// answer is how a store refused a request.
type answer struct {
	code, message string
	status        int
	region        string // in which the bucket is, if the store says so
}

// explain says what a user can do about an error of the SDK. What the store said comes first.
func (b *Bucket) explain(what string, err error) error {
	var api smithy.APIError
	var resp *smithyhttp.ResponseError
	var send *url.Error
	var form *smithy.DeserializationError
	a := answer{}
	if errors.As(err, &resp) && resp.Response != nil {
		a.status, a.region = resp.HTTPStatusCode(), resp.Response.Header.Get("X-Amz-Bucket-Region")
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, context.Canceled)
	case errors.As(err, &api):
		a.code, a.message = api.ErrorCode(), strings.Join(strings.Fields(api.ErrorMessage()), " ")
	case errors.As(err, &form) || a.status != 0:
		return fmt.Errorf("%s: the answer of %s is not that of an S3-compatible store: %w", what, b.server, err)
	case errors.As(err, &send): // its own text has the whole address
		return fmt.Errorf("%s: ask %s: %w", what, b.server, send.Err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
	said := a.code
	if a.message != "" && a.message != a.code {
		said += ": " + a.message
	}
	switch {
	case a.code == "NoSuchKey":
		return fmt.Errorf("%s: %s: %w", what, said, ErrGone)
	case a.status == http.StatusPreconditionFailed:
		return fmt.Errorf("%s: %s: %w", what, said, errChanged)
	case a.code == "InvalidObjectState":
		return fmt.Errorf("%s: %s; the object is archived: restore it into a class of storage that can be read", what, said)
	}
	if do := b.remedy(a); do != "" {
		return conf.Mistake(refusedError{fmt.Errorf("%s: %s; %s", what, strings.TrimSuffix(said, "."), do)})
	}
	return fmt.Errorf("%s: %s", what, said)
}

// remedy says what to do about an answer that all requests would get.
func (b *Bucket) remedy(a answer) string {
	switch a.code {
	case "NoSuchBucket":
		return b.server + " has no bucket of this name: look for a mistake in it, or name the store by --s3-endpoint"
	case "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException":
		return b.server + " does not know the access key: see AWS_ACCESS_KEY_ID or AWS_PROFILE, and name the store by " +
			"--s3-endpoint if it is not AWS"
	case "SignatureDoesNotMatch":
		return "the secret key does not belong to the access key: see AWS_SECRET_ACCESS_KEY or AWS_PROFILE; a proxy that " +
			"changes requests has the same effect"
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired":
		return "get new credentials, such as by aws sso login"
	case "RequestTimeTooSkewed":
		return "set the clock of this machine"
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return inRegion(a.region)
	}
	switch a.status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		return inRegion(a.region)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the credentials need s3:ListBucket on arn:aws:s3:::%s and s3:GetObject on arn:aws:s3:::%[1]s/*, "+
			"and kms:Decrypt if a key of KMS encrypts the objects", b.name)
	}
	return ""
}

func inRegion(name string) string {
	return fmt.Sprintf("the bucket is in another region: set AWS_REGION=%s", cmp.Or(name, "REGION"))
}
