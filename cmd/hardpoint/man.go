package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages for those who make packages. It is not listed.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages into a folder", Hidden: true,
		Long: "Writes a manual page for each command into the folder DIR, which is made when it is missing. The date in them is that of\nSOURCE_DATE_EPOCH (seconds since 1970) when it is set.",
		Args: exactly("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "HARDPOINT", Section: "1", Source: "Hardpoint " + readBuild().Version, Manual: "Hardpoint"}, args[0])
		},
	}
}
