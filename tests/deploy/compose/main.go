// What `docker compose config` does, by the library behind it: read a compose file whole (schema, merged keys, interpolation, paths,
// what services name of each other) and print it as JSON.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithInterpolation(true), cli.WithResolvedPaths(true),
		cli.WithNormalization(true), cli.WithConsistency(true))
	if err == nil {
		err = show(options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(options *cli.ProjectOptions) error {
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	text, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
